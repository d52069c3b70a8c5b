/** A search that reads many jobs: it goes on by itself for a while, then when it is asked to. */

import { Problem } from "../api.js";
import { time } from "../clock.js";
import { el, link, replace } from "../dom.js";
import { count, number } from "../format.js";

const GO_ON_MS = 10_000;

/**
 * Goes on with a page of jobs until it is full, all jobs are read, or ten seconds are over.
 * @param {object} options
 * @param {any} options.page The first part: `jobs`, `searched`, `stopped`, `next_cursor`, `read_at`. It is added to.
 * @param {number} options.wanted How many jobs fill the page.
 * @param {(cursor: string, limit: number) => Promise<any>} options.read
 * @param {() => void} options.show Is called when there is more.
 * @param {() => Promise<void>} options.again Searches anew.
 * @param {string} options.newest The address of the same list in the order of ids.
 * @param {AbortSignal} options.signal
 */
export function search({ page, wanted, read, show, again, newest, signal }) {
  const node = el("div", { class: "search", role: "status" });
  let isRunning = false;
  let isLong = page.stopped;
  let trouble = "";

  const canGoOn = () => page.stopped && page.next_cursor && page.jobs.length < wanted;

  async function goOn() {
    if (isRunning) return;
    const until = performance.now() + GO_ON_MS;
    isRunning = true;
    trouble = "";
    say();
    while (canGoOn() && performance.now() < until && !signal.aborted) {
      try {
        const found = await read(page.next_cursor, wanted - page.jobs.length);
        if (signal.aborted) return;
        page.jobs.push(...found.jobs);
        Object.assign(page, { searched: page.searched + found.searched, stopped: found.stopped, next_cursor: found.next_cursor, read_at: found.read_at });
      } catch (error) {
        if (signal.aborted) return;
        trouble = error instanceof Problem ? `${error.message} ` : `${error} `;
        break;
      }
      say();
      show();
    }
    isRunning = false;
    say();
    show();
  }

  function say() {
    const found = page.jobs.length ? `${count(page.jobs.length, "job")} ${page.jobs.length === 1 ? "matches" : "match"}` : "No match yet";
    if (isRunning) replace(node, el("p", null, `Searching: ${count(page.searched, "job")} read. ${found}.`));
    else if (canGoOn()) {
      replace(node, el("p", null, `${trouble}${found} among the ${number(page.searched)} jobs that were read. There are more to read.`),
        el("button", { type: "button", "data-calm": true, on: { click: goOn } }, "Go on searching"));
    } else if (page.stopped && !page.next_cursor) {
      replace(node, el("p", null, `This order looks at ${number(page.searched)} jobs only, the newest. There are more. `, link(newest, "Search all, newest first")));
    } else if (isLong) {
      replace(node, el("p", null, `${count(page.searched, "job")} read, `, time(page.read_at, { ago: true }), ". This list does not change by itself. "),
        el("button", { type: "button", "data-calm": true, on: { click: again } }, "Search again"));
    } else replace(node);
  }

  if (canGoOn()) goOn();
  else say();
  return {
    node,
    /** Whether it is not over: nothing can be said about all jobs. */
    isOpen: () => isRunning || page.stopped,
    /** Whether it took more than one request: it is not done again by itself. */
    isLong: () => isLong,
    /** Takes over what was read anew in one request. @param {any} given */
    update(given) {
      page = given;
      isLong = page.stopped;
      if (canGoOn()) goOn();
      else say();
    },
  };
}
