// Messages of a contender's Node processes to the measuring process; the lines are those of messages.py.

import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const BATCH = 1_000;

export const HOLD_MS = 3_600_000;
const [verb, place, config, jobs] = process.argv.slice(2);
export const asked = { verb, place, tuned: config === "tuned", jobs: Number(jobs) };

// The contenders' packages are in a separate folder, which Node does not search by default.
export const load = createRequire(`${process.env.BENCH_NODE_MODULES}/`);

// Seconds since 1970, finer than the milliseconds of Date.now().
const now = () => (performance.timeOrigin + performance.now()) / 1_000;

export const say = (what, at = now()) => {
  writeSync(1, `@@${JSON.stringify({ what, at })}\n`);
};

// Called by every empty job, or for many of them at once; sends a message when the last one has run.
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

// Yields the kinds of job to send, one for each line of input, and reports the time just before each was sent.
export async function* orders() {
  say("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const at = now();
    yield line.trim();
    say("sent", at);
  }
}

export const main = async (verbs) => {
  // A worker runs for ever, and must not outlive the process at the other end of its input.
  if (asked.verb === "work") process.stdin.resume().on("end", () => process.exit());
  await verbs[asked.verb]();
  if (asked.verb !== "work") process.exit();
};
