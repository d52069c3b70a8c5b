/** Groups: how far are jobs that belong together? */

import { get } from "../api.js";
import { el, link, path, replace, setText, withQuery } from "../dom.js";
import { count, number, percentDone } from "../format.js";
import { bar, buttons, dead, DEAD, followUp, NOT_ENDED, stateOf } from "../parts/group.js";
import { pager } from "../parts/pager.js";
import { command, countLink, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";

const GROUPS_MAX = 100;
/** @type {any} */
let view = null;

export const title = () => "Groups";
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ query, signal }) {
  return (await get(withQuery("/v1/groups", { unfinished: query.get("all") ? null : "true", after: query.get("after"), limit: GROUPS_MAX }), signal)).groups;
}

/** A number that leads to the jobs that it counts. @param {any} group @param {string} status @param {number} n */
function counted(group, status, n) {
  return countLink(withQuery(path("groups", group.name), { status }), n);
}

/** @param {() => Promise<void>} reload @returns {import("../parts/table.js").Column<any>[]} */
function columns(reload) {
  return [
    { name: "Group", cell: (group) => link(path("groups", group.name), group.name), cut: true },
    { name: "State", cell: stateOf },
    { name: "Progress", cell: (group) => el("span", { class: "pill" }, bar(group), ` ${percentDone(group.progress)}`) },
    { name: "Jobs", cell: (group) => countLink(path("groups", group.name), group.total), number: true },
    { name: "Live", cell: (group) => counted(group, NOT_ENDED, group.live), number: true },
    { name: "Succeeded", cell: (group) => counted(group, "succeeded", group.succeeded), number: true },
    { name: "Dead", cell: (group) => counted(group, DEAD, dead(group)), number: true },
    { name: "Then", cell: (group) => followUp(group.then, group.then_job), cut: true },
    { name: "If one fails", cell: (group) => followUp(group.on_dead, group.on_dead_job), cut: true },
    { name: "", cell: (group) => buttons(group, reload) },
  ];
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { query, reload }) {
  const isAll = Boolean(query.get("all"));
  const answer = el("p", { class: "answer" });
  const chip = (/** @type {string} */ href, /** @type {string} */ name, /** @type {boolean} */ isHere) => el("li", null, el("a", { class: "chip", href, "aria-current": isHere && "true" }, name));
  const chips = el("ul", { class: "chips" }, chip("/groups", "Not done", !isAll), chip("/groups?all=true", "All groups", isAll));
  const list = table("Groups", columns(reload), (group) => group.name);
  const none = query.get("after") ? empty("There are no further groups.") : empty(
    `There are no groups${isAll ? "" : " that are not done"}. A group counts jobs that belong together, and makes a job when all have succeeded:`,
    command(`holdfast group add import-42 --then '{"kind": "publish", "queue": "web"}'`),
    command("holdfast job enqueue load --queue imports --group import-42"),
    command("holdfast group close import-42"),
  );
  const pages = el("p", null);
  root.append(head("Groups"), answer, chips, none, list.node, pages);
  view = { answer, list, none, pages, isAll, after: query.get("after") };
  update(data);
}

/** @param {any[]} data */
export function update(data) {
  const sum = (/** @type {string} */ name) => data.reduce((all, group) => all + group[name], 0);
  setText(view.answer, `${count(data.length, "group")}; ${number(sum("succeeded"))} of ${count(sum("total"), "job")} have succeeded.`);
  view.answer.hidden = view.list.node.hidden = data.length === 0;
  view.none.hidden = data.length > 0;
  view.list.update(data);
  replace(view.pages, pager("/groups", view.isAll ? { all: "true" } : {}, view.after, data.length === GROUPS_MAX ? data[data.length - 1].name : null));
}

export function leave() {
  view = null;
}
