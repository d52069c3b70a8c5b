/** One queue. */

import { get, getIfThere } from "../api.js";
import { el, link, path, replace, setText, withQuery } from "../dom.js";
import { number } from "../format.js";
import { COLUMNS } from "../parts/columns.js";
import { readJobs } from "../parts/joblist.js";
import { DEPTH, historyCharts, THROUGHPUT, WAIT } from "../parts/history.js";
import { pauseButton, resumeButton } from "../parts/pause.js";
import { settingsText, stateOf } from "../parts/queue.js";
import { command, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { pill, STATUSES } from "../status.js";

/** Weights that are named. */
const WEIGHTS_MAX = 50;
/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Queue ${name}`;

/** @param {import("../router.js").Address} address */
export async function load({ name, signal }) {
  const [queue, jobs, workers, settings] = await Promise.all([
    get(path("v1", "queues", name), signal),
    readJobs({ queue: name, order: "newest", limit: 20 }, signal),
    getIfThere("/v1/workers", signal, { workers: [] }),
    get("/v1/queue-settings", signal),
  ]);
  return { queue, jobs: jobs.jobs, workers: workers.workers, settings: settings.queues.find((/** @type {any} */ one) => one.queue === name) };
}

/** @param {import("../router.js").Address} address */
export function watch({ name }) {
  return { queue: name };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name, signal, reload }) {
  const state = el("p", { class: "answer" });
  const buttons = el("span", null);
  const counts = el("ul", { class: "chips" });
  const charts = historyCharts({ queue: name }, { depth: DEPTH, throughput: THROUGHPUT, wait: WAIT }, signal);
  const list = table("Newest jobs of this queue", COLUMNS, (job) => job.id);
  const serving = el("p", null);
  const settings = el("p", { class: "muted" });
  root.append(head(`Queue ${name}`, buttons), state, settings, counts, charts.node, el("h2", null, "Workers that serve it"), serving, el("h2", null, "Newest jobs"), list.node, el("p", null, link(withQuery("/jobs", { queue: name }), "All jobs of this queue")), command(`holdfast queue list`));
  view = { state, settings, buttons, counts, charts, list, serving, name, reload };
  update(data);
}

/** @param {any} data */
export function update({ queue, jobs, workers, settings }) {
  replace(view.state, stateOf(queue), queue.ready_since ? "" : " · no job is ready");
  const serves = settingsText(settings, WEIGHTS_MAX);
  setText(view.settings, serves);
  view.settings.hidden = serves === "";
  const isPaused = Boolean(queue.paused_at);
  if (view.buttons.dataset.paused !== String(isPaused)) {
    view.buttons.dataset.paused = String(isPaused);
    view.buttons.replaceChildren((isPaused ? resumeButton : pauseButton)(view.name, view.reload) ?? "");
  }
  const chips = STATUSES.filter((status) => queue.counts[status]).map((status) =>
    el("li", null, el("a", { class: "chip", href: withQuery("/jobs", { queue: view.name, status }) }, pill(status), el("span", { class: "n" }, number(queue.counts[status])))),
  );
  replace(view.counts, ...chips);
  view.list.update(jobs);
  const serving = workers.filter((/** @type {any} */ one) => one.details?.queues?.includes?.(view.name));
  if (!serving.length) setText(view.serving, "No worker that has signed in names this queue.");
  else replace(view.serving, ...serving.flatMap((/** @type {any} */ one) => [link(path("workers", one.name), one.name), " "]));
}

export function leave() {
  view?.charts.leave();
  view = null;
}

