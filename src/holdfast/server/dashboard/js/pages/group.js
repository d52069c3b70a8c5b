/** One group: its counts, its follow-up jobs, and its jobs. */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, link, path, replace, withQuery } from "../dom.js";
import { argument, count, number, percentDone, quoted } from "../format.js";
import { COLUMNS } from "../parts/columns.js";
import { bar, buttons, countsOf, followUp, stateOf } from "../parts/group.js";
import { pager } from "../parts/pager.js";
import { command, empty, facts, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { errorLine, pill } from "../status.js";

const JOBS_MAX = 50;
/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Group ${name}`;
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ name, query, signal }) {
  const base = path("v1", "groups", name);
  const [{ group }, { jobs, why, next_after }] = await Promise.all([get(base, signal), get(withQuery(`${base}/jobs`, { status: query.get("status"), after: query.get("after"), why: true, limit: JOBS_MAX }), signal)]);
  return { group, next_after, jobs: jobs.map((/** @type {any} */ job) => ({ ...job, why: why?.[job.id]?.words, last_error: errorLine(job.last_error) })) };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name, query, reload }) {
  const verbs = el("span", null);
  const answer = el("p", { class: "answer" });
  const progress = el("p", null);
  const counts = el("ul", { class: "chips" });
  const about = el("div", null);
  const list = table("Jobs of the group", COLUMNS, (job) => job.id);
  const status = query.get("status");
  const none = status || query.get("after")
    ? empty(`The group has no ${query.get("after") ? "further " : ""}jobs${status ? ` whose status is ${status.replaceAll(",", " or ").replaceAll("_", " ")}` : ""}.`)
    : empty("The group has no jobs that you may see. A job joins a group when it is enqueued:", command(`holdfast job enqueue load --queue imports --group=${quoted(name)}`));
  const pages = el("p", null);
  root.append(
    head(`Group ${name}`, verbs), answer, progress, counts, about,
    el("h2", null, status ? `Jobs: ${status.replaceAll(",", ", ").replaceAll("_", " ")}` : "Jobs"), none, list.node, pages,
    status ? el("p", null, link(path("groups", name), "All jobs of the group")) : "",
    command(`holdfast group get ${argument(name)}`),
  );
  view = { verbs, answer, progress, counts, about, list, none, pages, name, query, reload };
  update(data);
}

/** @param {any} data */
export function update({ group, jobs, next_after }) {
  replace(view.verbs, buttons(group, view.reload));
  replace(view.answer, `The group is ${stateOf(group)}: ${number(group.succeeded)} of ${count(group.total, "job")} succeeded, ${number(group.live)} ${group.live === 1 ? "has" : "have"} not ended.`);
  replace(view.progress, bar(group), ` ${percentDone(group.progress)}`);
  replace(view.counts, ...countsOf(group).map(([status, n]) => el("li", null, el("a", { class: "chip", href: withQuery(path("groups", group.name), { status }) }, pill(status), el("span", { class: "n" }, number(n))))));
  replace(view.about, facts(
    ["when all have succeeded", followUp(group.then, group.then_job)],
    ["when one has not", followUp(group.on_dead, group.on_dead_job)],
    ["follow-up refused", group.last_error],
    ["made", [time(group.created_at, { ago: true }), ` by ${group.created_by}`]],
    ["closed", group.closed_at && [time(group.closed_at, { ago: true }), ` by ${group.closed_by}`]],
    ["cancelled", group.cancelled_at && time(group.cancelled_at, { ago: true })],
  ));
  view.list.node.hidden = jobs.length === 0;
  view.none.hidden = jobs.length > 0;
  view.list.update(jobs);
  replace(view.pages, pager(path("groups", view.name), { status: view.query.get("status") }, view.query.get("after"), next_after));
}

export function leave() {
  view = null;
}
