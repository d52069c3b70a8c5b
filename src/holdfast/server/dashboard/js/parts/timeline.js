/** The life of a job as lanes. */

import { everySecond, ms, now } from "../clock.js";
import { el, replace, svg } from "../dom.js";
import { duration, fullTime } from "../format.js";
import { OVER } from "../status.js";
import { asTable, axis, AXIS, defs, foldBands, FOOT, legend } from "./frame.js";
import { attemptLane, isInner, LANE, signalsLane, waitsLane } from "./lanes.js";
import { laned, moments, sentence } from "./moments.js";
import { extent, findFolds, FOLD_PX, makeScale } from "./scale.js";

const GUTTER_WIDE = 96;
const GUTTER_NARROW = 60;
const NARROW = 600;
const SIGNALS = 34;
const SPAN_MIN_MS = 5;

/**
 * Makes a timeline.
 * @param {any} first The answer of the timeline route.
 * @param {(from: string, to: string) => Promise<any>} [finer] Reads a part of the timeline, with finer bins.
 */
export function timeline(first, finer) {
  let data = first;
  let isTrue = false;
  /** @type {Set<number>} */
  const opened = new Set();
  /** @type {import("./scale.js").Span | null} */
  let zoom = rangeOfAddress();
  /** Heartbeats of the part that is shown, if those of the whole are counted by bins. @type {any} */
  let fine = null;
  let asText = false;
  let gutter = GUTTER_WIDE;
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
  const node = el("div", null, tools, place, legend(), text);

  function whole() {
    const end = OVER.has(data.status) ? Math.max(...moments(data).map((one) => one.at)) : Math.max(now(), ...data.next.map((/** @type {any} */ step) => Math.min(ms(step.at) ?? 0, now() + 60_000)));
    return extent(ms(data.waits[0]?.from) ?? now(), end);
  }

  function draw() {
    trueScale.setAttribute("aria-pressed", String(isTrue));
    textButton.setAttribute("aria-pressed", String(asText));
    replace(text, asText ? asTable(data) : null);
    gutter = (place.clientWidth || 1000) < NARROW ? GUTTER_NARROW : GUTTER_WIDE;
    const width = Math.max(200, (place.clientWidth || 1000) - gutter);
    const range = zoom ?? whole();
    const folds = isTrue ? [] : findFolds(moments(data).map((one) => one.at), range).filter((fold) => !opened.has(Math.round(fold.from)));
    scale = makeScale(range, width, folds);
    const lanes = laned(data.attempts);
    const height = AXIS + LANE * (1 + lanes.length) + SIGNALS + (folds.length ? FOOT : 0);
    const picture = svg("svg", { role: "img", "aria-label": sentence(data), viewBox: `0 0 ${width + gutter} ${height}`, height }, defs());
    const body = svg("g", { transform: `translate(${gutter} 0)` });
    const beats = fine ?? data.beats;
    const exact = (beats.exact ?? []).map((/** @type {string} */ at) => Date.parse(at));
    body.append(...axis(scale, height), ...foldBands(scale, height));
    const rows = [["waits", waitsLane(scale, data.waits, AXIS)]];
    lanes.forEach((attempt, n) => {
      const from = ms(attempt.claimed_at) ?? 0;
      const to = ms(attempt.ended_at) ?? Infinity;
      const within = (/** @type {number} */ at) => at >= from && at <= to;
      const bins = (beats.bins ?? []).filter((/** @type {any} */ bin) => within(Date.parse(bin.from)));
      const marks = data.marks.filter((/** @type {any} */ mark) => isInner(mark.type) && within(Date.parse(mark.at)));
      rows.push([`#${attempt.n} ${attempt.worker}`, attemptLane(/** @type {any} */ (scale), attempt, exact.filter(within), bins, marks, AXIS + LANE * (n + 1))]);
    });
    rows.push(["signals", signalsLane(scale, data.marks, AXIS + LANE * (lanes.length + 1))]);
    rows.forEach(([name, parts], n) => {
      body.append(...parts.filter(Boolean));
      picture.append(svg("text", { class: "lane-name", x: 8, y: AXIS + LANE * n + 15 }, name.length > gutter / 7 ? `${name.slice(0, gutter / 7 - 1)}…` : name));
    });
    body.append(...following(scale, height), nowLine, cursor);
    picture.append(body);
    const focused = [...place.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    place.replaceChildren(picture, ...scale.folds.map(unfoldButton), tip);
    place.querySelectorAll("button")[focused]?.focus();
    moveNow();
    if (data.attempts.length > lanes.length || data.attempts_cut) {
      text.append(el("p", { class: "muted" }, `${data.attempts.length - lanes.length + data.attempts_cut} more attempts are not drawn.`));
    }
  }

  /** @param {import("./scale.js").Span} fold */
  function unfoldButton(fold) {
    const made = button(duration(fold.to - fold.from), () => (opened.add(Math.round(fold.from)), draw()), { class: "unfold quiet", "aria-label": `Show the ${duration(fold.to - fold.from)} in which nothing happened` });
    made.style.setProperty("left", `${gutter + /** @type {any} */ (scale).x(fold.from) + FOLD_PX / 2}px`);
    return made;
  }

  /** What is next, as dotted lines. @param {import("./scale.js").Scale} on @param {number} height */
  function following(on, height) {
    return data.next.flatMap((/** @type {any} */ step) => {
      const x = step.at ? on.x(Date.parse(step.at)) : -1;
      if (x < 0 || x > on.width) return [];
      return [svg("path", { class: "next", d: `M${x.toFixed(1)} ${AXIS}V${height}` }), ...label(on, x, step.what)];
    });
  }

  /** The words of what is next, at the side that has room. @param {import("./scale.js").Scale} on @param {number} x @param {string} what */
  function label(on, x, what) {
    const room = what.length * 6.5;
    if (x + room < on.width) return [svg("text", { class: "label", x: x + 4, y: AXIS + 15 }, what)];
    return x > room ? [svg("text", { class: "label", x: x - 4, y: AXIS + 15, "text-anchor": "end" }, what)] : [];
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
    const address = new URL(location.href);
    for (const name of /** @type {const} */ (["from", "to"])) {
      if (zoom) address.searchParams.set(name, new Date(zoom[name]).toISOString());
      else address.searchParams.delete(name);
    }
    history.replaceState(null, "", address);
    fine = null;
    draw();
    readFiner();
  }

  /** Asks for finer bins of the part that is shown. */
  async function readFiner() {
    const wanted = zoom;
    if (!wanted || !finer || !data.beats.bins) return;
    const found = await finer(new Date(wanted.from).toISOString(), new Date(wanted.to).toISOString()).catch(() => null);
    if (!found || zoom !== wanted) return;
    fine = found.beats;
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
  const placeOf = (event) => event.clientX - place.getBoundingClientRect().left - gutter;
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
    tip.style.setProperty("left", `${Math.min(x + gutter + 12, place.clientWidth - 220)}px`);
    tip.style.setProperty("top", "28px");
  }

  const stopTicking = everySecond(() => {
    if (OVER.has(data.status)) return;
    if (place.matches(":hover, :focus-within")) moveNow();
    else draw();
  });
  const watcher = new ResizeObserver(() => requestAnimationFrame(draw));
  watcher.observe(place);
  readFiner();
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

/** The part of the timeline that the address names. @returns {import("./scale.js").Span | null} */
function rangeOfAddress() {
  const query = new URLSearchParams(location.search);
  const [from, to] = [Date.parse(query.get("from") ?? ""), Date.parse(query.get("to") ?? "")];
  return to - from >= SPAN_MIN_MS ? { from, to } : null;
}
