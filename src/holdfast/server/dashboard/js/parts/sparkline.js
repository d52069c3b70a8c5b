/** A small line without an axis. */

import { svg } from "../dom.js";
import { strokes } from "./chart.js";

const WIDTH = 120;
const HEIGHT = 24;

/** @param {(number | null)[]} values @param {string} label */
export function sparkline(values, label) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  const { line, dots } = strokes(values, (n) => n * step, (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 4));
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("path", { d: line }), dots && svg("path", { class: "dots", d: dots }));
}
