/** The frame of a timeline: axis, folds, legend, and the same facts as a table. */

import { el, svg } from "../dom.js";
import { clockTime, day, dayNumber, fullTime, minuteTime, timeForm } from "../format.js";
import { moments } from "./moments.js";
import { FOLD_PX, ticks } from "./scale.js";

export const AXIS = 24;
export const FOOT = 26;

export function defs() {
  const pattern = (/** @type {string} */ id, /** @type {string} */ kind) => svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: kind, width: 3, height: 6 }));
  return svg("defs", null, pattern("hatch", "ready"), pattern("stripes", "stall"));
}

/** The folded stretches, behind the lanes. @param {import("./scale.js").Scale} scale @param {number} height */
export function foldBands(scale, height) {
  return scale.folds.flatMap((fold) => {
    const x = scale.x(fold.from);
    const edges = [x, x + FOLD_PX].map((at) => svg("path", { class: "fold-edge", d: `M${at.toFixed(1)} ${AXIS - 4}V${height - FOOT}` }));
    return [svg("rect", { class: "fold", x: x.toFixed(1), y: AXIS - 4, width: FOLD_PX, height: height - FOOT - AXIS + 4 }), ...edges];
  });
}

/** What the shapes mean. */
export function legend() {
  const entry = (/** @type {string} */ name, /** @type {string} */ hue, /** @type {string} */ kind = "") => el("span", { class: hue }, el("i", { class: kind || null }), name);
  return el("div", { class: "legend", "aria-hidden": "true" }, entry("waits", "queued"), entry("claimed", "claimed", "outline"), entry("running", "running"), entry("stalled, or a late heartbeat", "stalled"), entry("assisted", "succeeded", "thin"), entry("lease", "claimed", "thin"), el("span", null, "ticks are heartbeats · ⚑ operator  ◆ worker  ■ system  ▲ client"));
}

/** @param {import("./scale.js").Scale} scale @param {number} height */
export function axis(scale, height) {
  const zone = timeForm() === "utc" ? 0 : new Date(scale.from).getTimezoneOffset();
  const { step, times } = ticks(scale, zone);
  let last = dayNumber(scale.from);
  return times.flatMap((at) => {
    const isNewDay = dayNumber(at) !== last;
    last = dayNumber(at);
    const label = step >= 86_400_000 ? day(at) : `${isNewDay ? `${day(at)} ` : ""}${step >= 60_000 ? minuteTime(at) : step >= 1000 ? clockTime(at) : `${clockTime(at).replace(/(:\d\d)(?!.*:\d\d)/, `$1.${String(Math.round(at % 1000)).padStart(3, "0")}`)}`}`;
    const x = scale.x(at).toFixed(1);
    return [svg("path", { class: "grid", d: `M${x} ${AXIS - 4}V${height}` }), svg("text", { x: Number(x) + 3, y: AXIS - 8 }, label)];
  });
}

/** The same facts as a table. @param {any} data */
export function asTable(data) {
  const rows = moments(data).map((one) => el("tr", null, el("td", null, fullTime(one.at)), el("td", null, one.what)));
  return el("div", { class: "box", tabindex: "0", role: "region", "aria-label": "Timeline as text" }, el("table", null, el("thead", null, el("tr", null, el("th", { scope: "col" }, "Time"), el("th", { scope: "col" }, "What"))), el("tbody", null, ...rows)));
}
