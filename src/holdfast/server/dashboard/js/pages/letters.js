/** Dead letters: why did jobs come to nothing, and what do I do with them? */

import { verbsForMany } from "../actions.js";
import { get, Problem } from "../api.js";
import { time } from "../clock.js";
import { el, link, path, replace, setText, whileDisabled, withQuery } from "../dom.js";
import { count, number } from "../format.js";
import { actOnMany } from "../parts/bulk.js";
import { filterRow } from "../parts/filter.js";
import { command, countLink, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { errorLine, pill } from "../status.js";

/** @type {[string, string][]} */
const GROUPS = [["", "cause"], ["reason_code", "reason"], ["kind", "kind"], ["queue", "queue"], ["reason_code,failure_stage,error_text", "reason, stage and error"]];
const DEFAULT = "cause";
/** For roles from which errors are hidden. */
const WITHOUT_ERRORS = "reason_code,failure_stage";
/** @type {any} */
let view = null;

export const title = () => "Dead letters";

/** @param {import("../router.js").Address} address */
export async function load({ query, signal }) {
  const scope = { queue: query.get("queue"), kind: query.get("kind") };
  const groupsBy = (/** @type {string} */ by) => get(withQuery("/v1/dead-letters/groups", { by, ...scope }), signal);
  const [groups, letters] = await Promise.all([
    groupsBy(query.get("by") || DEFAULT).catch((error) => {
      if (error instanceof Problem && error.status === 403) return groupsBy(WITHOUT_ERRORS);
      throw error;
    }),
    get(withQuery("/v1/dead-letters", { ...scope, limit: 200, after: query.get("after") }), signal),
  ]);
  return { groups, letters: letters.dead_letters, next: letters.next_after };
}

/** A letter as the verbs take jobs. @param {any} letter */
function asJob(letter) {
  return { ...letter, id: letter.job_id, status: "dead_lettered" };
}

/** The number of letters of a group. It leads to them if the list can be filtered by what they share. @param {any} group @param {URLSearchParams} query */
function countOf(group, query) {
  const { kind, queue, ...other } = group.key;
  if (Object.values(other).some(Boolean)) return number(group.n);
  return countLink(withQuery("/dead-letters", { queue: queue ?? query.get("queue"), kind: kind ?? query.get("kind") }), group.n);
}

/** The reason codes of a group that is one of errors. @param {any} group */
function reasons(group) {
  if (!group.key.cause || Object.keys(group.reasons).some((code) => group.key.cause.startsWith(code))) return null;
  return Object.entries(group.reasons).map(([code, n]) => `${code} ${number(n)}`).join(", ");
}

/**
 * Buttons for all letters of a group, also those that are not on this page. They are read when a button is pressed.
 * @param {any} group
 * @param {URLSearchParams} query
 * @param {import("../actions.js").Verb[]} verbs
 */
function groupButtons(group, query, verbs) {
  return verbs.map((verb) => {
    const button = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-verb": verb.name, "aria-label": `${verb.label} the whole group` }, `${verb.label} all…`));
    button.addEventListener("click", () => whileDisabled(button, async () => {
      const by = Object.keys(group.key).join(",");
      const found = await get(withQuery("/v1/dead-letters/groups", { by, queue: query.get("queue"), kind: query.get("kind"), letters: "true" }));
      const same = found.groups.find((/** @type {any} */ one) => JSON.stringify(one.key) === JSON.stringify(group.key));
      const letters = (same?.letters ?? []).map((/** @type {any} */ letter) => ({ ...letter, status: "dead_lettered" }));
      await actOnMany(verb, letters);
    }));
    return button;
  });
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { query }) {
  const chosen = new Map();
  const sheet = el("div", { class: "sheet", hidden: true });
  const verbs = verbsForMany().filter((verb) => verb.name === "replay" || verb.name === "discard");
  const groups = table("Groups of dead letters", [
    { name: "Why", cell: (/** @type {any} */ group) => [Object.values(group.key).filter(Boolean).join(" · ") || "no reason known", el("div", { class: "muted" }, reasons(group))] },
    { name: "Letters", cell: (group) => countOf(group, query), number: true },
    { name: "Newest", cell: (group) => [link(path("jobs", group.newest_id), `#${group.newest_id}`), " ", time(group.newest_at, { ago: true })] },
    ...(verbs.length ? [{ name: "Whole group", cell: (/** @type {any} */ group) => el("div", { class: "row-verbs" }, groupButtons(group, query, verbs)) }] : []),
  ], (group) => JSON.stringify(group.key));
  const box = (/** @type {any} */ letter) => {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", "aria-label": `Select job ${letter.job_id}` }));
    input.addEventListener("change", () => {
      if (input.checked) chosen.set(letter.job_id, asJob(letter));
      else chosen.delete(letter.job_id);
      showSheet();
    });
    return input;
  };
  const list = table("Dead letters", [
    ...(verbs.length ? [{ name: "Selected", check: true, heading: el("span", { class: "unseen" }, "Selected"), cell: box }] : []),
    { name: "Id", cell: (letter) => link(path("jobs", letter.job_id), String(letter.job_id)) },
    { name: "Kind", cell: (letter) => letter.kind, cut: true },
    { name: "Queue", cell: (letter) => letter.queue, cut: true },
    { name: "Reason", cell: (letter) => [letter.reason_code, letter.failure_stage].filter(Boolean).join(" · ") },
    { name: "Error", cell: (letter) => errorLine(letter.last_error), cut: true },
    { name: "Attempts", cell: (letter) => number(letter.attempts), number: true },
    { name: "Worker", cell: (letter) => letter.last_owner ?? "", cut: true },
    { name: "When", cell: (letter) => time(letter.dead_lettered_at, { ago: true }), number: true },
    { name: "Replayed", cell: (letter) => (letter.replayed_as ? [link(path("jobs", letter.replayed_as.job_id), `#${letter.replayed_as.job_id}`), " ", pill(letter.replayed_as.status)] : (letter.note ?? "")) },
  ], (letter) => letter.job_id);

  function showSheet() {
    sheet.hidden = chosen.size === 0;
    const buttons = verbs.map((verb) => el("button", { type: "button", "data-verb": verb.name, on: { click: async () => {
      if (!(await actOnMany(verb, [...chosen.values()]))) return;
      chosen.clear();
      for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (list.node.querySelectorAll("input"))) input.checked = false;
      showSheet();
    } } }, `${verb.label}…`));
    replace(sheet, el("span", null, `${count(chosen.size, "letter")} selected`), ...buttons);
  }

  const answer = el("p", { class: "answer" });
  const note = el("div", null);
  const pages = el("p", null);
  const waiting = el("div", null, el("h2", null, "By cause"), groups.node);
  const sections = el("div", null, waiting, el("h2", null, "Letters"), list.node);
  const meaning = el("p", { class: "muted" }, "A job becomes a dead letter when its attempts are used up, when its input or its result is not valid, or when an operator ends it so. A job is ",
    link("/jobs?status=failed", "failed"), " when its handler reports that no further attempt would help.");
  root.append(head("Dead letters"), answer, meaning, filterRow("/dead-letters", query, [
    { name: "by", label: "Group by", choices: GROUPS }, { name: "queue", label: "Queue" }, { name: "kind", label: "Kind" },
  ]), note, sections, sheet, pages, command("holdfast dlq list"));
  view = { answer, note, pages, groups, list, sections, waiting, query };
  update(data);
}

/** @param {any} data */
export function update({ groups, letters, next }) {
  const total = groups.groups.reduce((/** @type {number} */ sum, /** @type {any} */ group) => sum + group.n, 0);
  const more = groups.cut ? " or more" : "";
  const waits = total ? `${count(total, "dead letter")}${more} ${total === 1 ? "waits" : "wait"} for a decision, of ${count(groups.groups.length, view.query.get("by") ? "group" : "cause")}. Replay them when the cause is gone, or discard them.` : "";
  const replayed = groups.replayed ? `${number(groups.replayed)} ${total ? "more " : ""}${groups.replayed === 1 ? "was" : "were"} replayed and ${groups.replayed === 1 ? "stays" : "stay"} in the list below until discarded.` : "";
  setText(view.answer, [waits || (replayed && "No dead letter waits for a decision."), replayed].filter(Boolean).join(" "));
  view.waiting.hidden = groups.groups.length === 0;
  const filter = ["queue", "kind"].filter((name) => view.query.get(name)).map((name) => `${name} = ${view.query.get(name)}`).join(" and ");
  replace(view.note, letters.length ? null : empty(filter ? `No dead letter matches ${filter}.` : "There are no dead letters."));
  view.sections.hidden = letters.length === 0;
  view.groups.update(groups.groups);
  view.list.update(letters);
  replace(view.pages, next ? link(withQuery("/dead-letters", { ...Object.fromEntries(view.query), after: next }), "Next page") : null);
}

export function leave() {
  view = null;
}
