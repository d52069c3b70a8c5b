// graphile-worker: a statement for every fetch and one for every finish, or many at once out of a local queue.

import { EventEmitter } from "node:events";

import { HOLD_MS, asked, batches, counting, load, main, orders, say } from "./messages.mjs";

const { Logger, makeWorkerUtils, run } = load("graphile-worker");

// The configuration of the "Quick stats" on its performance page.
const TUNED = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const preset = { worker: { connectionString: asked.place, logger: quiet, ...(asked.tuned ? TUNED : {}) } };

const ran = counting();
const taskList = {
  noop: () => ran(),
  tell: () => say("began"),
  hold: () => {
    say("began");
    return new Promise((resolve) => setTimeout(resolve, HOLD_MS));
  },
};

const install = async () => {
  const utils = await makeWorkerUtils({ preset });
  await utils.migrate();
};

const fill = async () => {
  const utils = await makeWorkerUtils({ preset });
  for (const size of batches()) await utils.addJobs(Array.from({ length: size }, () => ({ identifier: "noop" })));
};

const send = async () => {
  const utils = await makeWorkerUtils({ preset });
  for await (const kind of orders()) await utils.addJob(kind);
};

const work = async () => {
  // It connects and starts in one call; its first query for a job is the earliest visible sign of readiness.
  const events = new EventEmitter();
  events.once("worker:getJob:start", () => say("ready"));
  await run({ preset, taskList, events, noHandleSignals: true });
};

await main({ install, fill, send, work });
