/** What has a number or a name: what is typed into the find box may be an id, a key or the name of many things. */

import { get, Problem } from "../api.js";
import { el, link, path, withQuery } from "../dom.js";
import { count } from "../format.js";
import { pill } from "../status.js";

const NAMED_MAX = 3;

/** Reads, or returns null if there is no such thing, if it is hidden, or if the text cannot be a name of it. @param {string} address @param {AbortSignal} signal */
async function look(address, signal) {
  try {
    return await get(address, signal);
  } catch (error) {
    if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 401) return null;
    throw error;
  }
}

/** @param {string} text @param {string} field @param {string} words @param {AbortSignal} signal */
async function linked(text, field, words, signal) {
  const found = await look(withQuery("/v1/jobs", { [field]: text, fields: "brief", order: "newest", limit: NAMED_MAX + 1 }), signal);
  if (!found?.jobs.length) return null;
  const named = found.jobs.slice(0, NAMED_MAX).flatMap((/** @type {any} */ job) => [link(path("jobs", job.id), `#${job.id}`), " "]);
  const many = found.jobs.length > NAMED_MAX ? "More jobs" : count(found.jobs.length, "job");
  return el("li", null, link(withQuery("/jobs", { [field]: text }), `${many} with the ${words} ${text}`), ": ", ...named, found.jobs.length > NAMED_MAX ? "…" : null);
}

/**
 * Returns what is named exactly so: a job, a queue, a kind, a worker, a group, and jobs by key and correlation id.
 * @param {string} text
 * @param {Set<string>} kinds
 * @param {AbortSignal} signal
 */
export async function offers(text, kinds, signal) {
  const id = /^#?(\d{1,18})$/.exec(text)?.[1];
  // Lists are asked, because each thing that is not there would be an error in the console of the browser.
  const [jobs, queues, workers, groups, keyed, joined] = await Promise.all([
    id ? look(withQuery("/v1/jobs", { after: Number(id) - 1, limit: 1, fields: "brief" }), signal) : null,
    look("/v1/queues", signal),
    look("/v1/workers", signal),
    look(withQuery("/v1/groups", { after: text.slice(0, -1), limit: 1000 }), signal),
    linked(text, "dedupe_key", "dedupe key", signal),
    linked(text, "correlation_id", "correlation id", signal),
  ]);
  const job = jobs?.jobs.find((/** @type {any} */ one) => String(one.id) === id?.replace(/^0+/, ""));
  const has = (/** @type {any[] | undefined} */ list) => list?.some((one) => one.name === text);
  const found = [
    job && el("li", null, link(path("jobs", job.id), `Job ${job.id}`), `: ${job.kind} in queue ${job.queue}, `, pill(job.status)),
    has(queues?.queues) && el("li", null, link(path("queues", text), `Queue ${text}`)),
    kinds.has(text) && el("li", null, link(path("kinds", text), `Kind ${text}`)),
    has(workers?.workers) && el("li", null, link(path("workers", text), `Worker ${text}`)),
    has(groups?.groups) && el("li", null, link(path("groups", text), `Group ${text}`)),
    keyed,
    joined,
  ].filter((one) => one);
  return found.length ? el("section", { class: "panel offers" }, el("h2", null, `What is called ${text}`), el("ul", null, ...found)) : null;
}
