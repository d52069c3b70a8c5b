// pg-boss: one job at every look by default; batches that follow each other without a pause when tuned.

import { HOLD_MS, asked, batches, counting, load, main, orders, say } from "./messages.mjs";

const { PgBoss } = load("pg-boss");

const KINDS = ["noop", "tell", "hold"];

// What its page on workers gives for throughput: batches (as large as in its own speed test), workers beside each
// other, and no pause after a full batch; for latency: LISTEN and NOTIFY.
const TUNED = { batchSize: 5_000, localConcurrency: 2, burstWhenBatchFull: true };

const started = async (options = {}) => {
  const boss = new PgBoss({ connectionString: asked.place, useListenNotify: asked.tuned, ...options });
  boss.on("error", (error) => console.error(error));
  return boss.start();
};

const ran = counting();
const handlers = {
  noop: async (jobs) => ran(jobs.length),
  tell: async () => say("began"),
  hold: () => {
    say("began");
    return new Promise((resolve) => setTimeout(resolve, HOLD_MS));
  },
};

const install = async () => {
  const boss = await started();
  for (const kind of KINDS) await boss.createQueue(kind, asked.tuned ? { notify: true } : {});
};

const fill = async () => {
  const boss = await started();
  for (const size of batches()) await boss.insert("noop", Array.from({ length: size }, () => ({})));
};

const send = async () => {
  const boss = await started();
  for await (const kind of orders()) await boss.send(kind);
};

const work = async () => {
  const boss = await started();
  say("ready");
  for (const kind of KINDS) await boss.work(kind, asked.tuned ? TUNED : {}, handlers[kind]);
};

await main({ install, fill, send, work });
