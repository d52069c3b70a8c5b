/** What happened in a job's life, as moments and as words. */

import { ms, now } from "../clock.js";
import { duration } from "../format.js";
import { word } from "../status.js";

const FIRST = 3;
const LAST = 10;
const LANES_MAX = 20;

/** Every moment that the timeline has, for folds and for the cursor. @param {any} data */
export function moments(data) {
  /** @type {[string | null, string][]} */
  const found = [];
  for (const wait of data.waits) found.push([wait.from, "queued"], [wait.ready_at, "ready"]);
  for (const attempt of data.attempts) {
    found.push([attempt.claimed_at, `#${attempt.n} claimed by ${attempt.worker}`], [attempt.started_at, `#${attempt.n} started`]);
    if (attempt.ended_at) found.push([attempt.ended_at, `#${attempt.n} ended: ${word(attempt.end ?? "")}`]);
    for (const stall of attempt.stalls) found.push([stall.from, `#${attempt.n} stalled: ${stall.reason ?? ""}`], [stall.to, `#${attempt.n} no longer stalled`]);
  }
  for (const mark of data.marks) found.push([mark.at, [word(mark.type), mark.reason, `by ${mark.actor}`].filter(Boolean).join(" · ")]);
  return found.flatMap(([text, what]) => (text ? [{ at: Date.parse(text), what }] : [])).sort((a, b) => a.at - b.at);
}

/** One sentence for screen readers. @param {any} data */
export function sentence(data) {
  const parts = data.attempts.slice(-3).map((/** @type {any} */ attempt) => {
    const lasted = duration((ms(attempt.ended_at) ?? now()) - (ms(attempt.claimed_at) ?? 0));
    return attempt.end ? `Attempt ${attempt.n} ended as ${word(attempt.end)} after ${lasted}` : `attempt ${attempt.n} has lasted for ${lasted}`;
  });
  return parts.length ? `Timeline. ${parts.join(", ")}.` : "Timeline. The job was not claimed yet.";
}

/** The attempts that get a lane: all, or the first 3, the last 10 and those with a stall of another reason. @param {any[]} attempts */
export function laned(attempts) {
  if (attempts.length <= LANES_MAX) return attempts;
  const seen = new Set();
  return attempts.filter((attempt, n) => {
    const reason = attempt.stalls[0]?.reason;
    const isNew = reason && !seen.has(reason) && seen.add(reason);
    return n < FIRST || n >= attempts.length - LAST || isNew;
  });
}
