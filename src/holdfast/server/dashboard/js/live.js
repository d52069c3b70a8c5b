/** Keeps a page up to date: one stream of events a tab, which says when to load the page's data again. */

import { everySecond, sync } from "./clock.js";
import { withQuery } from "./dom.js";
import { stored, store } from "./format.js";
import { leavePlace, takePlace } from "./places.js";

/** @typedef {"live" | "lost" | "paused" | "polling" | "off"} LiveState */

const LOAD_EVERY_MS = 1000;
const POLL_EVERY_MS = 10_000;
const HELLO_WITHIN_MS = 5000;
/** After this time of polling a stream is tried again. */
const STREAM_AGAIN_MS = 60_000;
const HIDDEN_AFTER_MS = 30_000;
/** Every type but heartbeats, which change a list at most in its ages. */
const TYPES = [
  "enqueued", "claimed", "started", "assist_started", "assist_ended", "stalled", "resumed", "requeued", "unblocked", "moved",
  "reprioritised", "rescheduled", "replaced", "postponed", "succeeded", "failed", "cancel_requested", "cancelled",
  "dead_lettered", "compensated", "compensation_failed", "discarded",
];

/** @type {EventSource | null} */
let source = null;
/** @type {{query: Record<string, any> | null, load: () => Promise<void>, onEvent?: (event: any) => void} | null} */
let page = null;
/** @type {LiveState} */
let state = "off";
let isPaused = stored("holdfast.live") === "paused";
let lastLoad = 0;
let polledSince = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let pending, hello, hidden;
/** @type {Set<(state: LiveState) => void>} */
const listeners = new Set();

/** Calls a function when the state changes. @param {(state: LiveState) => void} listener */
export function onLiveState(listener) {
  listeners.add(listener);
}

/** @param {LiveState} given */
function say(given) {
  state = given;
  for (const listener of listeners) listener(state);
}

/**
 * Follows what a page shows. `load` is called at most once a second after something has changed.
 * @param {Record<string, any> | null} query Which events: job_id, queue, kind; `beats` also takes heartbeats. Null: poll only.
 * @param {() => Promise<void>} load
 * @param {(event: any) => void} [onEvent]
 */
export function follow(query, load, onEvent) {
  stop();
  page = { query, load, onEvent };
  lastLoad = performance.now();
  if (isPaused) say("paused");
  else start();
}

/** Follows the stream, or polls where no event says that the page has changed. */
function start() {
  polledSince = performance.now();
  if (page?.query) open();
  else poll();
}

/** Ends what the last page followed. */
export function stop() {
  rest();
  page = null;
}

/** Like rest, and another tab can have a stream instead of this one. */
function pause() {
  rest();
  leavePlace();
}

/** Closes the stream and clears all timers. */
function rest() {
  source?.close();
  source = null;
  clearTimeout(pending);
  clearTimeout(hello);
  pending = hello = undefined;
}

async function open() {
  const wanted = page;
  if (!wanted?.query || document.hidden) return;
  const hasPlace = await takePlace();
  if (wanted !== page || isPaused || document.hidden || source) return;
  if (!hasPlace) {
    poll();
    return;
  }
  const { beats, ...query } = wanted.query;
  source = new EventSource(withQuery("/v1/events/stream", beats ? query : { types: TYPES.join(","), ...query }));
  const opened = source;
  // A proxy that buffers: no stream comes through. That is so too if the browser connects again.
  const awaitHello = () => {
    clearTimeout(hello);
    hello = setTimeout(() => source === opened && poll(), HELLO_WITHIN_MS);
  };
  awaitHello();
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
    if (source !== opened) return;
    say("lost");
    if (opened.readyState === EventSource.CLOSED) poll();
    else awaitHello();
  });
}

function poll() {
  if (!page) return;
  pause();
  say("polling");
  pending = setTimeout(async () => {
    pending = undefined;
    await loadNow();
    if (!page || isPaused || source !== null || pending !== undefined || document.hidden) return;
    if (page.query && performance.now() - polledSince > STREAM_AGAIN_MS) start();
    else poll();
  }, POLL_EVERY_MS);
}

/** Loads soon, but at most once a second. */
function soon() {
  if (pending !== undefined || isPaused || !page) return;
  const wait = Math.max(50, LOAD_EVERY_MS - (performance.now() - lastLoad));
  pending = setTimeout(() => {
    pending = undefined;
    loadNow();
  }, wait);
}

/** Loads the page's data now. */
export async function loadNow() {
  lastLoad = performance.now();
  await page?.load();
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
    pause();
    say("paused");
  } else {
    loadNow();
    start();
  }
}

// Not everything has an event: workers sign in, and sentences about times become old.
everySecond(() => {
  if (page && state === "live" && pending === undefined && performance.now() - lastLoad > POLL_EVERY_MS) loadNow();
});

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(pause, HIDDEN_AFTER_MS);
  else if (page && !isPaused && source === null && pending === undefined) {
    loadNow();
    start();
  }
});
