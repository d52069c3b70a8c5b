/** The life of a job as lanes. */

import { everySecond, ms, now } from "../clock.js";
import { el, replace, svg } from "../dom.js";
import { clockTime, day, dayNumber, duration, fullTime, minuteTime, timeForm } from "../format.js";
import { OVER, word } from "../status.js";
import { attemptLane, isInner, LANE, signalsLane, waitsLane } from "./lanes.js";
import { extent, findFolds, makeScale, ticks } from "./scale.js";

const AXIS = 24;
const GUTTER = 96;
const SIGNALS = 34;
const FIRST = 3;
const LAST = 10;
const LANES_MAX = 20;
const SPAN_MIN_MS = 5;

/** Every moment that the timeline has, for folds and for the cursor. @param {any} data */
function moments(data) {
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
function sentence(data) {
  const parts = data.attempts.slice(-3).map((/** @type {any} */ attempt) => {
    const lasted = duration((ms(attempt.ended_at) ?? now()) - (ms(attempt.claimed_at) ?? 0));
    return attempt.end ? `Attempt ${attempt.n} ended as ${word(attempt.end)} after ${lasted}` : `attempt ${attempt.n} has lasted for ${lasted}`;
  });
  return parts.length ? `Timeline. ${parts.join(", ")}.` : "Timeline. The job was not claimed yet.";
}

/** The attempts that get a lane: all, or the first 3, the last 10 and those with a stall of another reason. @param {any[]} attempts */
function laned(attempts) {
  if (attempts.length <= LANES_MAX) return attempts;
  const seen = new Set();
  return attempts.filter((attempt, n) => {
    const reason = attempt.stalls[0]?.reason;
    const isNew = reason && !seen.has(reason) && seen.add(reason);
    return n < FIRST || n >= attempts.length - LAST || isNew;
  });
}

/**
 * Makes a timeline.
 * @param {any} first The answer of the timeline route.
 */
export function timeline(first) {
  let data = first;
  let isTrue = false;
  /** @type {Set<number>} */
  const opened = new Set();
  /** @type {import("./scale.js").Span | null} */
  let zoom = null;
  let asText = false;
  /** @type {import("./scale.js").Scale | null} */
  let scale = null;
  const place = el("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline: arrow keys move it, + and − zoom, 0 shows all", "data-own-keys": true });
  const tip = el("div", { class: "tip", hidden: true });
  const text = el("div", null);
  const cursor = svg("path", { class: "cursor" });
  const nowLine = svg("path", { class: "now" });
  const button = (/** @type {string} */ label, /** @type {() => void} */ click, /** @type {any} */ more = {}) => el("button", { type: "button", ...more, on: { click } }, label);
  const trueScale = button("True scale", () => ((isTrue = !isTrue), draw()), { "aria-pressed": "false" });
  const textButton = button("As text", () => ((asText = !asText), draw()), { "aria-pressed": "false", "data-as-table": true });
  const tools = el("div", { class: "chips" }, button("−", () => zoomBy(2), { "aria-label": "Zoom out" }), button("+", () => zoomBy(0.5), { "aria-label": "Zoom in" }), button("All", () => setZoom(null)), trueScale, textButton);
  const node = el("div", null, tools, place, text);

  function whole() {
    const end = OVER.has(data.status) ? Math.max(...moments(data).map((one) => one.at)) : Math.max(now(), ...data.next.map((/** @type {any} */ step) => Math.min(ms(step.at) ?? 0, now() + 60_000)));
    return extent(ms(data.waits[0]?.from) ?? now(), end);
  }

  function draw() {
    trueScale.setAttribute("aria-pressed", String(isTrue));
    textButton.setAttribute("aria-pressed", String(asText));
    replace(text, asText ? asTable(data) : null);
    const width = Math.max(200, (place.clientWidth || 1000) - GUTTER);
    const range = zoom ?? whole();
    const folds = isTrue ? [] : findFolds(moments(data).map((one) => one.at), range).filter((fold) => !opened.has(Math.round(fold.from)));
    scale = makeScale(range, width, folds);
    const lanes = laned(data.attempts);
    const height = AXIS + LANE * (1 + lanes.length) + SIGNALS;
    const picture = svg("svg", { role: "img", "aria-label": sentence(data), viewBox: `0 0 ${width + GUTTER} ${height}`, height }, defs());
    const body = svg("g", { transform: `translate(${GUTTER} 0)` });
    const exact = (data.beats.exact ?? []).map((/** @type {string} */ at) => Date.parse(at));
    body.append(...axis(scale, height));
    const rows = [["waits", waitsLane(scale, data.waits, AXIS)]];
    lanes.forEach((attempt, n) => {
      const from = ms(attempt.claimed_at) ?? 0;
      const to = ms(attempt.ended_at) ?? Infinity;
      const within = (/** @type {number} */ at) => at >= from && at <= to;
      const bins = (data.beats.bins ?? []).filter((/** @type {any} */ bin) => within(Date.parse(bin.from)));
      const marks = data.marks.filter((/** @type {any} */ mark) => isInner(mark.type) && within(Date.parse(mark.at)));
      rows.push([`#${attempt.n} ${attempt.worker}`, attemptLane(/** @type {any} */ (scale), attempt, exact.filter(within), bins, marks, AXIS + LANE * (n + 1))]);
    });
    rows.push(["signals", signalsLane(scale, data.marks, AXIS + LANE * (lanes.length + 1))]);
    rows.forEach(([name, parts], n) => {
      body.append(...parts.filter(Boolean));
      picture.append(svg("text", { class: "lane-name", x: 8, y: AXIS + LANE * n + 15 }, name.length > 13 ? `${name.slice(0, 12)}…` : name));
    });
    body.append(...following(scale, height), nowLine, cursor);
    picture.append(body);
    place.replaceChildren(picture, ...scale.folds.map(unfoldButton), tip);
    moveNow();
    if (data.attempts.length > lanes.length || data.attempts_cut) {
      text.append(el("p", { class: "muted" }, `${data.attempts.length - lanes.length + data.attempts_cut} more attempts are not drawn.`));
    }
  }

  /** @param {import("./scale.js").Span} fold */
  function unfoldButton(fold) {
    const made = button(`⫽ ${duration(fold.to - fold.from)} ⫽`, () => (opened.add(Math.round(fold.from)), draw()), { class: "unfold quiet", "aria-label": `Show the ${duration(fold.to - fold.from)} in which nothing happened` });
    made.style.setProperty("left", `${GUTTER + /** @type {any} */ (scale).x(fold.from) - 16}px`);
    made.style.setProperty("bottom", "0");
    return made;
  }

  /** What is next, as dotted lines. @param {import("./scale.js").Scale} on @param {number} height */
  function following(on, height) {
    return data.next.flatMap((/** @type {any} */ step) => {
      const x = step.at ? on.x(Date.parse(step.at)) : -1;
      if (x < 0 || x > on.width) return [];
      return [svg("path", { class: "next", d: `M${x.toFixed(1)} ${AXIS}V${height}` }), svg("text", { class: "label", x: x - 4, y: height - 4, "text-anchor": "end" }, step.what.slice(0, 60))];
    });
  }

  function moveNow() {
    if (!scale) return;
    const x = scale.x(now());
    nowLine.setAttribute("d", !OVER.has(data.status) && x >= 0 && x <= scale.width ? `M${x.toFixed(1)} ${AXIS}V2000` : "");
  }

  /** @param {import("./scale.js").Span | null} range */
  function setZoom(range) {
    const all = whole();
    zoom = range && range.to - range.from >= SPAN_MIN_MS && range.to - range.from < all.to - all.from ? range : null;
    draw();
  }

  /** @param {number} factor @param {number} [middle] */
  function zoomBy(factor, middle) {
    const range = zoom ?? whole();
    const center = middle ?? (range.from + range.to) / 2;
    setZoom({ from: center - (center - range.from) * factor, to: center + (range.to - center) * factor });
  }

  /** @param {number} part */
  function pan(part) {
    if (!zoom) return;
    const step = (zoom.to - zoom.from) * part;
    setZoom({ from: zoom.from + step, to: zoom.to + step });
  }

  /** @param {MouseEvent} event */
  const placeOf = (event) => event.clientX - place.getBoundingClientRect().left - GUTTER;
  /** @type {number | null} */
  let dragged = null;
  place.addEventListener("pointerdown", (event) => (dragged = event.button === 0 && placeOf(event) > 0 && event.target instanceof SVGElement ? placeOf(event) : null));
  place.addEventListener("pointerup", (event) => {
    const x = placeOf(event);
    if (scale && dragged !== null && Math.abs(x - dragged) > 6) setZoom({ from: scale.at(Math.min(x, dragged)), to: scale.at(Math.max(x, dragged)) });
    dragged = null;
  });
  place.addEventListener("pointermove", (event) => point(placeOf(event)));
  place.addEventListener("pointerleave", () => point(-1));
  place.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !scale) return;
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 1.25 : 0.8, scale.at(placeOf(event)));
  }, { passive: false });
  place.addEventListener("keydown", (event) => {
    const keys = /** @type {Record<string, () => void>} */ ({ ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1), "+": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => setZoom(null) });
    if (!keys[event.key] || event.ctrlKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  /** Shows what is nearest to a place. @param {number} x */
  function point(x) {
    tip.hidden = x < 0 || !scale;
    cursor.setAttribute("d", tip.hidden ? "" : `M${x} ${AXIS - 4}V2000`);
    if (tip.hidden || !scale) return;
    const at = scale.at(x);
    const near = moments(data).filter((one) => Math.abs(/** @type {any} */ (scale).x(one.at) - x) < 8).slice(0, 4);
    replace(tip, el("div", null, near.length ? fullTime(near[0].at) : fullTime(at)), ...near.map((one) => el("div", null, one.what)));
    tip.style.setProperty("left", `${Math.min(x + GUTTER + 12, place.clientWidth - 220)}px`);
    tip.style.setProperty("top", "28px");
  }

  const stopTicking = everySecond(() => (OVER.has(data.status) ? null : draw()));
  const watcher = new ResizeObserver(() => requestAnimationFrame(draw));
  watcher.observe(place);
  return {
    node,
    /** @param {any} given */
    update(given) {
      data = given;
      draw();
    },
    leave() {
      stopTicking();
      watcher.disconnect();
    },
  };
}

function defs() {
  const pattern = (/** @type {string} */ id, /** @type {string} */ kind) => svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: kind, width: 3, height: 6 }));
  return svg("defs", null, pattern("hatch", "ready"), pattern("stripes", "stall"));
}

/** @param {import("./scale.js").Scale} scale @param {number} height */
function axis(scale, height) {
  const zone = timeForm() === "utc" ? 0 : new Date(scale.from).getTimezoneOffset();
  const { step, times } = ticks(scale, zone);
  let last = dayNumber(scale.from);
  return times.flatMap((at) => {
    const isNewDay = dayNumber(at) !== last;
    last = dayNumber(at);
    const label = step >= 86_400_000 ? day(at) : `${isNewDay ? `${day(at)} ` : ""}${step >= 60_000 ? minuteTime(at) : clockTime(at)}${step < 1000 ? `.${String(Math.round(at % 1000)).padStart(3, "0")}` : ""}`;
    const x = scale.x(at).toFixed(1);
    return [svg("path", { class: "grid", d: `M${x} ${AXIS - 4}V${height}` }), svg("text", { x: Number(x) + 3, y: AXIS - 8 }, label)];
  });
}

/** The same facts as a table. @param {any} data */
function asTable(data) {
  const rows = moments(data).map((one) => el("tr", null, el("td", null, fullTime(one.at)), el("td", null, one.what)));
  return el("div", { class: "box", tabindex: "0", role: "region", "aria-label": "Timeline as text" }, el("table", null, el("thead", null, el("tr", null, el("th", { scope: "col" }, "Time"), el("th", { scope: "col" }, "What"))), el("tbody", null, ...rows)));
}
