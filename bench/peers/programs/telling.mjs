// What a contender's processes on Node tell the one that measures; the lines are those of telling.py.

import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const BATCH = 1_000;

export const HOLD_MS = 3_600_000;
const [verb, place, config, jobs] = process.argv.slice(2);
export const asked = { verb, place, tuned: config === "tuned", jobs: Number(jobs) };

// The contenders' packages lie in a folder of their own, where the search for modules does not look by itself.
export const load = createRequire(`${process.env.BENCH_NODE_MODULES}/`);

// Seconds since 1970, finer than the milliseconds of Date.now().
const now = () => (performance.timeOrigin + performance.now()) / 1_000;

export const say = (what, at = now()) => {
  writeSync(1, `@@${JSON.stringify({ what, at })}\n`);
};

// To be called by every job that does nothing, or for many of them at once; tells when the last one has run.
export const counting = () => {
  let number = 0;
  return (more = 1) => {
    number += more;
    if (number - more < asked.jobs && number >= asked.jobs) say("ran");
  };
};

// How many jobs to enqueue in each call.
export function* batches() {
  for (let start = 0; start < asked.jobs; start += BATCH) yield Math.min(BATCH, asked.jobs - start);
}

// The kinds of job to send, one whenever the other side asks for it; tells when each was about to be sent.
export async function* orders() {
  say("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const at = now();
    yield line.trim();
    say("sent", at);
  }
}

export const main = async (verbs) => {
  // A worker goes on for ever, and must not outlive the process that holds the other end.
  if (asked.verb === "work") process.stdin.resume().on("end", () => process.exit());
  await verbs[asked.verb]();
  if (asked.verb !== "work") process.exit();
};
