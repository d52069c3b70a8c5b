/** Shows the page of an address. A page is a module that is loaded when it is first needed. */

import { Problem } from "./api.js";
import { el } from "./dom.js";
import { follow, stop } from "./live.js";
import { problemBox, skeleton } from "./parts/states.js";
import { steadily } from "./parts/steady.js";

/**
 * @typedef {object} Address
 * @property {string} path
 * @property {string} name The second part of the path, decoded; empty if there is none.
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal Is aborted when the page is left.
 * @property {() => Promise<void>} reload Loads the data again and updates the page.
 *
 * @typedef {object} Page
 * @property {(address: Address) => string} title
 * @property {(address: Address) => Promise<any>} load
 * @property {(root: HTMLElement, data: any, address: Address) => void} draw
 * @property {(data: any, address: Address) => void} [update]
 * @property {(address: Address) => Record<string, any> | null} [watch] Which events change it. Null: none, it is polled.
 * @property {(event: any) => void} [onEvent]
 * @property {() => void} [leave]
 */

/** @type {Record<string, () => Promise<Page>>} */
const PAGES = {
  "": () => import("./pages/overview.js"),
  jobs: () => import("./pages/jobs.js"),
  "jobs/": () => import("./pages/job.js"),
  queues: () => import("./pages/queues.js"),
  "queues/": () => import("./pages/queue.js"),
  kinds: () => import("./pages/kinds.js"),
  "kinds/": () => import("./pages/kind.js"),
  workers: () => import("./pages/workers.js"),
  "workers/": () => import("./pages/worker.js"),
  agents: () => import("./pages/agents.js"),
  attention: () => import("./pages/attention.js"),
  "dead-letters": () => import("./pages/letters.js"),
  events: () => import("./pages/events.js"),
  schedules: () => import("./pages/schedules.js"),
  limits: () => import("./pages/limits.js"),
  "limits/": () => import("./pages/limit.js"),
  groups: () => import("./pages/groups.js"),
  "groups/": () => import("./pages/group.js"),
  sinks: () => import("./pages/sinks.js"),
  runs: () => import("./pages/runs.js"),
  seals: () => import("./pages/seals.js"),
  policies: () => import("./pages/policies.js"),
  tokens: () => import("./pages/tokens.js"),
  login: () => import("./pages/login.js"),
  help: () => import("./pages/help.js"),
};
const SKELETON_AFTER_MS = 150;
const RETRIES_MS = [2000, 4000, 8000, 16_000, 30_000];

/** @type {Page | null} */
let shown = null;
let leaving = new AbortController();
/** @type {(() => string | null) | null} */
let guard = null;

/** Asks before the page is left, if the function returns a question. @param {(() => string | null) | null} question */
export function guardLeaving(question) {
  guard = question;
}

/** Goes to an address. @param {string} href @param {{replace?: boolean, keepFocus?: boolean}} [options] */
export function go(href, options = {}) {
  const question = guard?.();
  if (question && !confirm(question)) return;
  guard = null;
  history[options.replace ? "replaceState" : "pushState"](null, "", href);
  show(options.keepFocus ?? false);
}

/** Shows the page of the present address. */
export async function show(keepFocus = false) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  stop();
  shown?.leave?.();
  shown = null;
  const root = /** @type {HTMLElement} */ (document.getElementById("page"));
  const [first, second] = location.pathname.split("/").slice(1);
  markNavigation(first);
  const waiting = setTimeout(() => !keepFocus && root.replaceChildren(skeleton(8)), SKELETON_AFTER_MS);
  try {
    const open = PAGES[second === undefined ? first : `${first}/`];
    if (!open) return;
    const page = await open();
    const address = { path: location.pathname, name: decodeURIComponent(second ?? ""), query: new URLSearchParams(location.search), signal, reload };
    document.title = `${page.title(address)} · Holdfast`;
    const data = await page.load(address);
    if (signal.aborted) return;
    clearTimeout(waiting);
    const place = el("div", null);
    page.draw(place, data, address);
    root.replaceChildren(place);
    shown = page;
    if (!keepFocus) /** @type {HTMLElement | null} */ (root.querySelector("h1"))?.focus({ preventScroll: false });
    if (page.update) follow(page.watch ? page.watch(address) : {}, reload, page.onEvent);

    async function reload() {
      await refresh(page, address);
    }
  } catch (error) {
    clearTimeout(waiting);
    if (signal.aborted || (error instanceof Problem && error.status === 401)) return;
    document.title = "Error · Holdfast";
    root.replaceChildren(el("h1", { tabindex: "-1" }, titleOf(error)), problemBox(error, () => show()));
  } finally {
    clearTimeout(waiting);
  }
}

/** @param {unknown} error */
function titleOf(error) {
  return error instanceof Problem && error.status === 404 ? "Not found" : "This page could not be loaded";
}

let failures = 0;

/** @param {Page} page @param {Address} address */
async function refresh(page, address) {
  if (address.signal.aborted) return;
  try {
    const data = await page.load(address);
    if (address.signal.aborted) return;
    const root = /** @type {HTMLElement} */ (document.querySelector("#page > div"));
    requestAnimationFrame(() => !address.signal.aborted && steadily(root, () => page.update?.(data, address)));
    failures = 0;
    banner(null);
  } catch (error) {
    if (address.signal.aborted || (error instanceof Problem && error.status === 401)) return;
    banner(error);
    const wait = RETRIES_MS[Math.min(failures++, RETRIES_MS.length - 1)];
    setTimeout(() => refresh(page, address), wait);
  }
}

let since = "";

/** Says that what is shown is old, or takes that back. @param {unknown} error */
function banner(error) {
  const node = /** @type {HTMLElement} */ (document.getElementById("banner"));
  document.body.classList.toggle("stale", error !== null);
  node.hidden = error === null;
  if (error === null) {
    since = "";
    return;
  }
  since ||= new Date().toLocaleTimeString(navigator.languages?.slice());
  const why = error instanceof Problem ? error.message : String(error);
  node.replaceChildren(el("span", null, `The ledger cannot be reached since ${since}; this page shows what was known then. ${why}`));
}

/** @param {string} first */
function markNavigation(first) {
  for (const one of document.querySelectorAll("#nav a")) {
    if (one.getAttribute("href") === `/${first}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

/** Follows links of the dashboard without loading the shell again. */
export function startRouter() {
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!target || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const href = target.getAttribute("href") ?? "";
    const isPage = href.startsWith("/") && PAGES[href.slice(1).split(/[/?#]/)[0]] !== undefined;
    if (!isPage || target.hasAttribute("download") || target.hasAttribute("target")) return;
    event.preventDefault();
    go(href);
  });
  window.addEventListener("popstate", () => show());
}
