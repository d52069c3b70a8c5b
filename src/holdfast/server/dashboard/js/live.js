/** Keeps a page up to date: one stream of events a tab, which says when to load the page's data again. */

import { sync } from "./clock.js";
import { withQuery } from "./dom.js";
import { stored, store } from "./format.js";

/** @typedef {"live" | "lost" | "paused" | "polling" | "off"} LiveState */

const LOAD_EVERY_MS = 1000;
const POLL_EVERY_MS = 10_000;
const HELLO_WITHIN_MS = 5000;
const HIDDEN_AFTER_MS = 30_000;
/** Every type but heartbeats, which change a list at most in its ages. */
const TYPES = [
  "enqueued", "claimed", "started", "assist_started", "assist_ended", "stalled", "resumed", "requeued", "unblocked", "moved",
  "reprioritised", "rescheduled", "succeeded", "failed", "cancel_requested", "cancelled", "dead_lettered", "compensated",
  "compensation_failed", "discarded",
];

/** @type {EventSource | null} */
let source = null;
/** @type {{query: Record<string, any>, load: () => Promise<void>, onEvent?: (event: any) => void} | null} */
let page = null;
/** @type {LiveState} */
let state = "off";
let since = 0;
let isPaused = stored("holdfast.live") === "paused";
let lastLoad = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let pending, hello, hidden;
/** @type {Set<(state: LiveState, since: number) => void>} */
const listeners = new Set();

/** Calls a function when the state changes. @param {(state: LiveState, since: number) => void} listener */
export function onLiveState(listener) {
  listeners.add(listener);
}

/** @param {LiveState} given */
function say(given) {
  if (given !== state) since = Date.now();
  state = given;
  for (const listener of listeners) listener(state, since);
}

/**
 * Follows what a page shows. `load` is called at most once a second after something has changed.
 * @param {Record<string, any> | null} query Which events: job_id, queue, kind; `beats` also takes heartbeats. Null: poll only.
 * @param {() => Promise<void>} load
 * @param {(event: any) => void} [onEvent]
 */
export function follow(query, load, onEvent) {
  stop();
  page = { query: query ?? {}, load, onEvent };
  lastLoad = performance.now();
  if (isPaused) say("paused");
  else if (query === null) poll();
  else open();
}

/** Ends what the last page followed. */
export function stop() {
  source?.close();
  source = null;
  clearTimeout(pending);
  clearTimeout(hello);
  pending = hello = undefined;
  page = null;
}

function open() {
  if (!page || document.hidden) return;
  const { beats, ...query } = page.query;
  source = new EventSource(withQuery("/v1/events/stream", beats ? query : { types: TYPES.join(","), ...query }));
  const opened = source;
  hello = setTimeout(() => {
    // A proxy that buffers: no stream will come through.
    opened.close();
    poll();
  }, HELLO_WITHIN_MS);
  source.addEventListener("hello", (message) => {
    clearTimeout(hello);
    sync(JSON.parse(message.data).now);
    const wasLost = state === "lost" || state === "polling";
    say("live");
    if (wasLost) soon();
  });
  source.addEventListener("event", (message) => {
    page?.onEvent?.(JSON.parse(message.data));
    soon();
  });
  source.addEventListener("error", () => {
    clearTimeout(hello);
    say("lost");
    if (opened.readyState === EventSource.CLOSED && source === opened) poll();
  });
}

function poll() {
  source?.close();
  source = null;
  clearTimeout(pending);
  say("polling");
  pending = setTimeout(async () => {
    pending = undefined;
    await load();
    if (page && !isPaused && source === null && !document.hidden) poll();
  }, POLL_EVERY_MS);
}

/** Loads soon, but at most once a second. */
function soon() {
  if (pending !== undefined || isPaused || !page) return;
  const wait = Math.max(50, LOAD_EVERY_MS - (performance.now() - lastLoad));
  pending = setTimeout(() => {
    pending = undefined;
    load();
  }, wait);
}

async function load() {
  lastLoad = performance.now();
  await page?.load();
}

/** Loads the page's data now. */
export function loadNow() {
  return load();
}

export function paused() {
  return isPaused;
}

/** Pauses or resumes. The choice is remembered. */
export function toggle() {
  isPaused = !isPaused;
  store("holdfast.live", isPaused ? "paused" : "live");
  if (!page) return;
  if (isPaused) {
    source?.close();
    source = null;
    clearTimeout(pending);
    pending = undefined;
    say("paused");
  } else {
    load();
    open();
  }
}

// Not everything has an event: workers sign in, and sentences about times become old.
setInterval(() => {
  if (page && state === "live" && pending === undefined && !document.hidden && performance.now() - lastLoad > POLL_EVERY_MS) load();
}, 1000);

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      source?.close();
      source = null;
      clearTimeout(pending);
      pending = undefined;
    }, HIDDEN_AFTER_MS);
  } else if (page && !isPaused && source === null && pending === undefined) {
    load();
    open();
  }
});
