/** A small line without an axis. */

import { svg } from "../dom.js";

const WIDTH = 120;
const HEIGHT = 24;

/** @param {(number | null)[]} values @param {string} label */
export function sparkline(values, label) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  let d = "";
  values.forEach((value, n) => {
    if (value === null) return;
    const isNew = n === 0 || values[n - 1] === null;
    d += `${isNew ? "M" : "L"}${(n * step).toFixed(1)} ${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("path", { d }));
}
