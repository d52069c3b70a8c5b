/** Draws the lanes of a timeline: waits, attempts, heartbeats, signals. */

import { ms, now } from "../clock.js";
import { svg } from "../dom.js";
import { glyph, word } from "../status.js";

export const LANE = 28;
const BAR = 12;
const BEAT = 8;
const STACK = 3;
const MARK_PX = 11;
const LABEL_PX = 60;
const INNER = new Set(["stage", "checkpoint", "undo"]);
const OWN = new Set(["enqueued", "stalled", "resumed"]);

/** @typedef {import("./scale.js").Scale} Scale */

/** A bar, at least a pixel wide. @param {Scale} scale @param {string} kind @param {number} from @param {number} to @param {number} y @param {number} [height] */
function bar(scale, kind, from, to, y, height = BAR) {
  const start = Math.max(0, scale.x(from));
  const end = Math.min(scale.width, scale.x(to));
  if (end < 0 || start > scale.width) return null;
  return svg("rect", { class: kind, x: start.toFixed(1), y, width: Math.max(1, end - start).toFixed(1), height });
}

/** @param {Scale} scale @param {string} kind @param {number} from @param {number} to @param {number} y */
function line(scale, kind, from, to, y) {
  const start = Math.max(0, scale.x(from));
  const end = Math.min(scale.width, scale.x(to));
  return end > start ? svg("path", { class: kind, d: `M${start.toFixed(1)} ${y}H${end.toFixed(1)}` }) : null;
}

/** @param {Scale} scale @param {any[]} waits @param {number} y */
export function waitsLane(scale, waits, y) {
  return waits.flatMap((wait) => {
    const from = /** @type {number} */ (ms(wait.from));
    const to = ms(wait.to) ?? now();
    const ready = Math.min(to, Math.max(from, ms(wait.ready_at) ?? from));
    return [ready > from ? bar(scale, "blocked", from, ready, y + 6) : null, to > ready ? bar(scale, "ready", ready, to, y + 6) : null];
  });
}

/**
 * @param {Scale} scale
 * @param {any} attempt
 * @param {number[]} beats Times of this attempt's heartbeats.
 * @param {any[]} bins
 * @param {any[]} marks Stages, checkpoints and undo steps of this attempt.
 * @param {number} y
 */
export function attemptLane(scale, attempt, beats, bins, marks, y) {
  const claimed = /** @type {number} */ (ms(attempt.claimed_at));
  const ended = ms(attempt.ended_at) ?? now();
  const started = ms(attempt.started_at);
  const top = y + 3;
  const parts = [bar(scale, "held", claimed, Math.max(claimed, started ?? ended), top)];
  if (started !== null) parts.push(bar(scale, "run", started, ended, top));
  for (const phase of attempt.phases) {
    const span = /** @type {const} */ ([ms(phase.from) ?? claimed, ms(phase.to) ?? ended]);
    if (phase.phase === "assisted") parts.push(bar(scale, "assisted", ...span, top - 2, 3));
    if (phase.phase === "aborting") parts.push(bar(scale, "aborting", ...span, top));
  }
  for (const stall of attempt.stalls) {
    const from = ms(stall.from) ?? claimed;
    const to = ms(stall.to) ?? ended;
    parts.push(bar(scale, "stall", from, to, top));
    const x = scale.x(from);
    if (x >= 0 && x < scale.width - LABEL_PX) parts.push(svg("text", { class: "label", x: Math.max(x, scale.x(to)) + 4, y: top + 10 }, word(stall.reason ?? "")));
  }
  for (const lease of attempt.leases) {
    const from = ms(lease.from) ?? claimed;
    const to = ms(lease.to) ?? ended;
    parts.push(line(scale, "lease", from, Math.min(to, now()), y + 17), to > now() ? line(scale, "lease ahead", now(), to, y + 17) : null);
  }
  parts.push(...beatMarks(scale, attempt, beats, bins, y + 19), ...innerMarks(scale, marks, top));
  if (attempt.end) {
    const cap = glyph(attempt.end === "requeued" || attempt.end === "claimed" ? "stalled" : attempt.end);
    for (const [name, value] of Object.entries({ x: Math.min(scale.width - 12, scale.x(ended) + 2), y: top, width: 12, height: 12 })) cap.setAttribute(name, String(value));
    if (OWN.has(attempt.end) === false && attempt.end !== "requeued") parts.push(cap);
  }
  return parts;
}

/** All heartbeats of a lane are one path. @param {Scale} scale @param {any} attempt @param {number[]} beats @param {any[]} bins @param {number} y */
function beatMarks(scale, attempt, beats, bins, y) {
  const interval = attempt.policy?.heartbeat_interval_ms ?? Infinity;
  let ticks = "";
  let late = "";
  let last = ms(attempt.started_at ?? attempt.claimed_at) ?? 0;
  for (const at of beats) {
    const x = scale.x(at);
    if (x >= 0 && x <= scale.width) ticks += `M${x.toFixed(1)} ${y}v${BEAT}`;
    // A tenth of room: a heartbeat is never exactly on time.
    if (at - last > interval * 1.1) late += `M${Math.max(0, scale.x(last)).toFixed(1)} ${y + BEAT}H${Math.min(scale.width, x).toFixed(1)}`;
    last = at;
  }
  const end = attempt.stalls.length ? (ms(attempt.stalls.at(-1).from) ?? now()) : (ms(attempt.ended_at) ?? now());
  if (end - last > interval * 1.1 && !bins.length) late += `M${Math.max(0, scale.x(last)).toFixed(1)} ${y + BEAT}H${Math.min(scale.width, scale.x(end)).toFixed(1)}`;
  const most = Math.max(1, ...bins.map((bin) => bin.n));
  for (const bin of bins) {
    const x = scale.x(ms(bin.from) ?? 0);
    const height = Math.max(1, BEAT * Math.sqrt(bin.n / most));
    if (x >= 0 && x <= scale.width) ticks += `M${x.toFixed(1)} ${(y + BEAT).toFixed(1)}v${(-height).toFixed(1)}`;
    if (bin.late_max_ms > interval * 0.1) late += `M${x.toFixed(1)} ${y + BEAT}h2`;
  }
  return [ticks ? svg("path", { class: "beats", d: ticks }) : null, late ? svg("path", { class: "late", d: late }) : null];
}

/** Notches for stages, ticks for checkpoints and undo steps. @param {Scale} scale @param {any[]} marks @param {number} top */
function innerMarks(scale, marks, top) {
  const parts = [];
  let free = -Infinity;
  for (const mark of marks) {
    const x = scale.x(ms(mark.at) ?? 0);
    if (x < 0 || x > scale.width) continue;
    if (mark.type === "stage") {
      parts.push(svg("path", { class: "grid", d: `M${x.toFixed(1)} ${top}v${BAR}` }));
      if (x - free > LABEL_PX) parts.push(svg("text", { class: "stage", x: x + 3, y: top + 10 }, (free = x) && mark.reason));
    } else {
      const isUndo = mark.type === "undo";
      parts.push(svg("circle", { class: isUndo ? "held" : "mark", cx: x.toFixed(1), cy: top + BAR / 2, r: isUndo ? 3.5 : 2.5 }));
    }
  }
  return parts;
}

const SHAPES = { operator: "M-4 -5L4 -2L-4 1V6H-5.500V-5z", worker: "M0 -5L5 0L0 5L-5 0z", system: "M-4 -4H4V4H-4z", client: "M0 -5L5 4H-5z" };

/** Signals: who did what. Those at the same place stack to three. @param {Scale} scale @param {any[]} marks @param {number} y */
export function signalsLane(scale, marks, y) {
  const parts = [];
  /** @type {{x: number, n: number}[]} */
  const places = [];
  for (const mark of marks) {
    if (INNER.has(mark.type)) continue;
    const x = scale.x(ms(mark.at) ?? 0);
    if (x < 0 || x > scale.width) continue;
    const place = places.find((one) => Math.abs(one.x - x) < MARK_PX) ?? places[places.push({ x, n: 0 }) - 1];
    place.n++;
    if (place.n > STACK) continue;
    const role = /** @type {keyof typeof SHAPES} */ (String(mark.actor).split(":", 1)[0]);
    const d = SHAPES[role] ?? SHAPES.system;
    parts.push(svg("path", { class: `mark ${role}`, d, transform: `translate(${place.x.toFixed(1)} ${y + 9 + (place.n - 1) * 9})`, "data-type": mark.type }));
  }
  for (const place of places) {
    if (place.n > STACK) parts.push(svg("text", { x: place.x + 7, y: y + 22 }, `+${place.n - STACK}`));
  }
  return parts;
}

/** @param {string} type */
export function isInner(type) {
  return INNER.has(type);
}
