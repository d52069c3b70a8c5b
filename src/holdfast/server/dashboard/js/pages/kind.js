/** One kind. */

import { get, Problem } from "../api.js";
import { el, link, replace, withQuery } from "../dom.js";
import { number } from "../format.js";
import { COLUMNS } from "../parts/columns.js";
import { readJobs } from "../parts/joblist.js";
import { DEPTH, historyCharts, RUN, THROUGHPUT, WAIT } from "../parts/history.js";
import { head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { pill, STATUSES } from "../status.js";

/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Kind ${name}`;

/** @param {import("../router.js").Address} address */
export async function load({ name, signal }) {
  const [kinds, jobs] = await Promise.all([get("/v1/kinds", signal), readJobs({ kind: name, order: "newest", limit: 20 }, signal)]);
  const kind = kinds.kinds.find((/** @type {any} */ one) => one.kind === name);
  if (!kind && !jobs.jobs.length) throw new Problem({ code: "not_found", detail: `No job has the kind ${name}.`, action: "See all kinds." }, 404, null);
  return { kind: kind ?? { counts: {}, errors: [] }, jobs: jobs.jobs };
}

/** @param {import("../router.js").Address} address */
export function watch({ name }) {
  return { kind: name };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name, signal }) {
  const counts = el("ul", { class: "chips" });
  const charts = historyCharts({ kind: name }, { throughput: THROUGHPUT, run: RUN, wait: WAIT, depth: DEPTH }, signal);
  const errors = table("Errors of the last hour", [{ name: "Class", cell: (/** @type {any} */ one) => one.error_class }, { name: "Failures", cell: (one) => number(one.n), number: true }], (one) => one.error_class);
  const list = table("Newest jobs of this kind", COLUMNS, (job) => job.id);
  root.append(head(`Kind ${name}`), counts, charts.node, el("h2", null, "Errors of the last hour"), errors.node, el("h2", null, "Newest jobs"), list.node, el("p", null, link(withQuery("/jobs", { kind: name }), "All jobs of this kind")));
  view = { counts, charts, errors, list, name };
  update(data);
}

/** @param {any} data */
export function update({ kind, jobs }) {
  replace(view.counts, ...STATUSES.filter((status) => kind.counts[status]).map((status) => el("li", null, el("a", { class: "chip", href: withQuery("/jobs", { kind: view.name, status }) }, pill(status), el("span", { class: "n" }, number(kind.counts[status]))))));
  view.errors.update(kind.errors.length ? kind.errors : [{ error_class: "none", n: 0 }]);
  view.list.update(jobs);
}

export function leave() {
  view?.charts.leave();
  view = null;
}
