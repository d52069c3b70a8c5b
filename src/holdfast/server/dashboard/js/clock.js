/** The ledger's time, and every element that shows an age. Ages never depend on the clock of this computer. */

import { el } from "./dom.js";
import { fullTime, ticking, timeForm } from "./format.js";

/** Ledger time minus the page's monotonic clock, in milliseconds. */
let offset = Date.now() - performance.now();
/** @type {Set<() => void>} */
const listeners = new Set();

/** The ledger's time in milliseconds since 1970. */
export function now() {
  return offset + performance.now();
}

/**
 * Takes over the ledger's time from an answer.
 * @param {string | null | undefined} text
 * @param {number} [sentAt] When the request was sent, by performance.now().
 */
export function sync(text, sentAt) {
  const at = text ? Date.parse(text) : NaN;
  if (Number.isNaN(at)) return;
  const here = performance.now();
  offset = at - (sentAt === undefined ? here : (sentAt + here) / 2);
}

/** Milliseconds of a time of an answer; null if there is none. @param {string | null | undefined} text */
export function ms(text) {
  return text ? Date.parse(text) : null;
}

/**
 * Returns an element that shows a time in the chosen form and stays right. `until` counts down instead.
 * @param {string | null | undefined} text
 * @param {{until?: boolean, ago?: boolean}} [options]
 */
export function time(text, options = {}) {
  if (!text) return el("span", { class: "muted" }, "–");
  const node = el("time", { datetime: text, "data-until": options.until, "data-ago": options.ago });
  show(node);
  return node;
}

/** @param {HTMLElement} node */
function show(node) {
  const at = Date.parse(node.getAttribute("datetime") ?? "");
  const gap = now() - at;
  let text;
  if (timeForm() !== "relative") text = fullTime(at);
  else if (gap < -500) text = `in ${ticking(-gap)}`;
  else if (node.hasAttribute("data-until")) text = "now";
  else text = node.hasAttribute("data-ago") ? `${ticking(gap)} ago` : ticking(gap);
  if (node.textContent !== text) node.textContent = text;
  const title = `${fullTime(at, false)} · ${fullTime(at, true)}`;
  if (node.title !== title) node.title = title;
}

/** Brings all times of the page up to date. */
export function showTimes() {
  for (const node of document.querySelectorAll("time[datetime]")) show(/** @type {HTMLElement} */ (node));
}

/** Calls a function every second while the page is shown. Returns a function that stops it. @param {() => void} listener */
export function everySecond(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** One timer for the page. A hidden page has none. @type {ReturnType<typeof setInterval> | undefined} */
let timer;

function tick() {
  showTimes();
  for (const listener of listeners) listener();
}

function run() {
  clearInterval(timer);
  if (document.hidden) return;
  timer = setInterval(tick, 1000);
}

document.addEventListener("visibilitychange", () => {
  run();
  if (!document.hidden) tick();
});
run();
