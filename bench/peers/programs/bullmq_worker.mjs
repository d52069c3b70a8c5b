// BullMQ: finishing a job fetches the next one, in one script on the server.

import { HOLD_MS, asked, batches, counting, load, main, orders, say } from "./messages.mjs";

const { Queue, Worker } = load("bullmq");

const QUEUE = "jobs";
const { hostname: host, port } = new URL(asked.place);
const connection = { host, port: Number(port) };

// The factor is that of its page on concurrency; the page on auto-removal has finished jobs removed.
const TUNED = { concurrency: 50, removeOnComplete: { count: 0 } };

const ran = counting();
const handlers = {
  noop: async () => ran(),
  tell: async () => say("began"),
  hold: () => {
    say("began");
    return new Promise((resolve) => setTimeout(resolve, HOLD_MS));
  },
};

const install = async () => {
  await new Queue(QUEUE, { connection }).waitUntilReady();
};

const fill = async () => {
  const queue = new Queue(QUEUE, { connection });
  for (const size of batches()) await queue.addBulk(Array.from({ length: size }, () => ({ name: "noop", data: {} })));
};

const send = async () => {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  for await (const kind of orders()) await queue.add(kind, {});
};

const work = async () => {
  const options = { connection, autorun: false, ...(asked.tuned ? TUNED : {}) };
  const worker = new Worker(QUEUE, (job) => handlers[job.name](), options);
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
  say("ready");
  await worker.run();
};

await main({ install, fill, send, work });
