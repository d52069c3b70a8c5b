/** Charts of a history: lines and stacked columns. */

import { el, replace, setText, svg, withQuery } from "../dom.js";
import { compact, day, decimal, duration, fullTime, minuteTime, number, timeForm } from "../format.js";
import { go } from "../router.js";
import { STEPS_MS } from "./scale.js";

const HEIGHT = 180;
const LEFT = 52;
const BOTTOM = 24;
const TOP = 8;
const DAY_MS = 86_400_000;
const LABEL_PX = 64;
const LOG_LINES = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000];

/**
 * @typedef {object} Series
 * @property {string} key The name of the value in each point.
 * @property {string} name
 * @property {string} hue A class that sets the colour.
 * @property {string} [style] p95: dashed.
 *
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {Series[]} series
 * @property {boolean} [columns] Stacked columns instead of lines.
 * @property {boolean} [times] Values are milliseconds, on a log scale.
 */

/** @type {Set<{point: (at: number | null) => void}>} */
const together = new Set();

/** The next nice number: 1, 2 or 5 times a power of ten. @param {number} value */
function nice(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= value) ?? value;
}

/**
 * Returns the path of a line with gaps, and one with a dot for each value that has none beside it.
 * @param {(number | null)[]} values
 * @param {(n: number) => number} x
 * @param {(value: number) => number} y
 */
export function strokes(values, x, y) {
  let line = "";
  let dots = "";
  const isThere = (/** @type {number} */ n) => (values[n] ?? null) !== null;
  values.forEach((value, n) => {
    if (value === null) return;
    const place = `${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!isThere(n - 1) && !isThere(n + 1)) dots += `M${place}h.01`;
    else line += `${isThere(n - 1) ? "L" : "M"}${place}`;
  });
  return { line, dots };
}

/** @param {ChartOptions} options */
export function chart(options) {
  const { series } = options;
  const format = options.times ? duration : decimal;
  const place = el("div", { class: "chart-place" });
  const heading = el("h3", null, options.title);
  const said = el("div", { class: "chart-note", "aria-live": "off" });
  const asTable = el("button", { type: "button", class: "link", "data-as-table": true, "aria-pressed": "false" }, "As table");
  const legend = series.map((one) => el("span", { class: one.hue }, el("i", null), one.name + (one.style === "p95" ? " (dashed)" : "")));
  const node = el("section", { class: "panel" }, el("div", { class: "panel-head" }, heading, asTable), el("div", { class: "legend" }, ...legend), place, said);
  /** @type {any} */
  let data = null;
  let isTable = false;
  let width = 0;
  const cursor = svg("path", { class: "cursor" });

  asTable.addEventListener("click", () => {
    isTable = !isTable;
    asTable.setAttribute("aria-pressed", String(isTable));
    draw();
  });

  const valueOf = (/** @type {any} */ point, /** @type {Series} */ one) => (point.values === null || point.values[one.key] === null ? null : Number(point.values[one.key]));
  const x = (/** @type {number} */ n) => LEFT + ((n + (options.columns ? 0.5 : 0)) / Math.max(1, data.points.length - (options.columns ? 0 : 1))) * (width - LEFT - 8);

  function scaleY() {
    const sums = data.points.map((/** @type {any} */ point) => (options.columns ? series.reduce((sum, one) => sum + (valueOf(point, one) ?? 0), 0) : Math.max(0, ...series.map((one) => valueOf(point, one) ?? 0))));
    const most = Math.max(0, ...sums);
    const room = HEIGHT - TOP - BOTTOM;
    if (!options.times) {
      const top = nice(most);
      return { lines: [0, top / 2, top], y: (/** @type {number} */ value) => TOP + room * (1 - value / top) };
    }
    const top = LOG_LINES.find((one) => one >= most) ?? LOG_LINES[LOG_LINES.length - 1];
    const span = Math.log10(Math.max(10, top));
    return { lines: LOG_LINES.filter((one) => one <= top), y: (/** @type {number} */ value) => TOP + room * (1 - Math.max(0, Math.log10(Math.max(1, value))) / span) };
  }

  function draw() {
    if (!data) return;
    if (options.columns) setText(heading, `${options.title}: jobs a ${data.step_s === 60 ? "minute" : duration(data.step_s * 1000)}`);
    if (isTable) {
      replace(place, table(data, series, format));
      return;
    }
    width = Math.max(220, place.clientWidth || 400);
    const { lines, y } = scaleY();
    const grid = lines.flatMap((value) => [
      svg("path", { class: "grid", d: `M${LEFT} ${y(value).toFixed(1)}H${width - 8}` }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, options.times ? duration(value) : compact(value)),
    ]);
    const shapes = options.columns ? columns(y) : series.map((one) => line(one, y));
    const isEmpty = data.points.every((/** @type {any} */ point) => point.values === null || series.every((one) => !valueOf(point, one)));
    const picture = svg("svg", { class: "chart", height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": sentence() }, ...grid, ...labels(), ...shapes, cursor);
    place.replaceChildren(picture);
    if (isEmpty) said.textContent = data.complete_from ? `Nothing happened. There is history since ${fullTime(Date.parse(data.complete_from))}.` : "There is no history yet.";
    else if (said.dataset.at === undefined) said.textContent = "";
  }

  /** Labels at round times, with room between them. */
  function labels() {
    const perPoint = (width - LEFT - 8) / Math.max(1, data.points.length);
    const step = STEPS_MS.find((one) => (one / (data.step_s * 1000)) * perPoint >= LABEL_PX) ?? 7 * DAY_MS;
    const zone = timeForm() === "utc" ? 0 : new Date(data.points[0]?.at).getTimezoneOffset() * 60_000;
    return data.points.flatMap((/** @type {any} */ point, /** @type {number} */ n) => {
      const at = Date.parse(point.at);
      if ((at - zone) % step !== 0 || x(n) > width - 24) return [];
      return [svg("text", { x: x(n), y: HEIGHT - 4, "text-anchor": "middle" }, step >= DAY_MS || (at - zone) % DAY_MS === 0 ? day(at) : minuteTime(at))];
    });
  }

  /** Gaps stay gaps. @param {Series} one @param {(value: number) => number} y */
  function line(one, y) {
    const { line: d, dots } = strokes(data.points.map((/** @type {any} */ point) => valueOf(point, one)), x, y);
    return svg("g", { class: one.hue }, svg("path", { class: `series ${one.style ?? ""}`, d }), dots && svg("path", { class: "dots", d: dots }));
  }

  /** @param {(value: number) => number} y */
  function columns(y) {
    const wide = Math.max(1, ((width - LEFT - 8) / data.points.length) * 0.8);
    return series.map((one, place) => {
      let d = "";
      data.points.forEach((/** @type {any} */ point, /** @type {number} */ n) => {
        const below = series.slice(0, place).reduce((sum, other) => sum + (valueOf(point, other) ?? 0), 0);
        const value = valueOf(point, one) ?? 0;
        if (value) d += `M${(x(n) - wide / 2).toFixed(1)} ${y(below).toFixed(1)}h${wide.toFixed(1)}V${y(below + value).toFixed(1)}h${(-wide).toFixed(1)}z`;
      });
      return svg("g", { class: one.hue }, svg("path", { class: "column", d }));
    });
  }

  function sentence() {
    const last = [...data.points].reverse().find((/** @type {any} */ point) => point.values !== null);
    return `${options.title}. ${last ? series.map((one) => `${one.name} ${format(valueOf(last, one))}`).join(", ") : "No values yet"}.`;
  }

  /** Shows the values of a point, on all charts of the page together. @param {number | null} n */
  function point(n) {
    const found = n === null || !data ? null : data.points[n];
    if (found) said.dataset.at = String(n);
    else delete said.dataset.at;
    cursor.setAttribute("d", found && !isTable ? `M${x(/** @type {number} */ (n)).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}` : "");
    said.textContent = found ? `${fullTime(Date.parse(found.at))}: ${series.map((one) => `${one.name} ${format(valueOf(found, one))}`).join(", ")}${found.open ? " (not over yet)" : ""}` : "";
  }

  const self = { point };
  together.add(self);
  const everywhere = (/** @type {number | null} */ n) => [...together].forEach((one) => one.point(n));
  place.addEventListener("pointermove", (event) => {
    if (!data) return;
    everywhere(nearest(event));
  });
  place.addEventListener("pointerleave", () => everywhere(null));
  /** @type {number | null} */
  let dragged = null;
  const nearest = (/** @type {PointerEvent} */ event) => Math.min(data.points.length - 1, Math.max(0, Math.round(((event.clientX - place.getBoundingClientRect().left - LEFT) / Math.max(1, width - LEFT - 8)) * (data.points.length - 1))));
  place.addEventListener("pointerdown", (event) => (dragged = data && !isTable && event.button === 0 ? nearest(event) : null));
  place.addEventListener("pointerup", (event) => {
    if (dragged === null) return;
    const [from, to] = [dragged, nearest(event)].sort((a, b) => a - b);
    dragged = null;
    if (to > from) go(withQuery("/jobs", { since: data.points[from].at, until: new Date(Date.parse(data.points[to].at) + data.step_s * 1000).toISOString(), queue: data.queue, kind: data.kind }));
  });
  const watcher = new ResizeObserver(() => requestAnimationFrame(() => place.clientWidth !== width && !isTable && draw()));
  watcher.observe(place);
  return {
    node,
    /** @param {any} given */
    update(given) {
      data = given;
      draw();
    },
    leave() {
      together.delete(self);
      watcher.disconnect();
    },
  };
}

/** @param {any} data @param {Series[]} series @param {(value: number | null) => string} format */
function table(data, series, format) {
  const rows = [...data.points].reverse().filter((point) => point.values !== null);
  const cells = rows.map((point) => el("tr", null, el("td", null, fullTime(Date.parse(point.at))), ...series.map((one) => el("td", { class: "number" }, format(point.values[one.key])))));
  const heads = [el("th", { scope: "col" }, "Time"), ...series.map((one) => el("th", { scope: "col", class: "number" }, one.name))];
  return el("div", { class: "box", tabindex: "0", role: "region", "aria-label": `Values, ${number(rows.length)} rows` }, el("table", null, el("thead", null, el("tr", null, ...heads)), el("tbody", null, ...cells)));
}
