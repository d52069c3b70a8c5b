/** One limit: what is in use of it, for each key? */

import { get, getIfThere } from "../api.js";
import { time } from "../clock.js";
import { el, path, replace, withQuery } from "../dom.js";
import { argument, count, number, quoted } from "../format.js";
import { askAndSend } from "../parts/confirm.js";
import { edit, mayChange, numbersOf, ownNumbers, removeButton, setButton } from "../parts/limit.js";
import { pager } from "../parts/pager.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { go } from "../router.js";

const KEYS_MAX = 100;
/** The server counts no more waiting jobs of a key. */
const WAITING_MAX = 1000;
/** What stands in the place of a key that the person's role may not see. */
const HIDDEN = "[redacted]";
/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Limit ${name}`;
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ name, query, signal }) {
  const base = path("v1", "limits", name);
  const [{ limit }, found] = await Promise.all([get(base, signal), getIfThere(withQuery(`${base}/keys`, { after: query.get("after"), limit: KEYS_MAX }), signal)]);
  const keys = (found?.keys ?? []).map((/** @type {any} */ one, /** @type {number} */ n) => ({ ...one, n }));
  return { limit, keys, isHidden: found === null };
}

/** The arguments of a job that has a key. @param {string} by */
function exampleArgs(by) {
  return by.split(".").slice(1).reduceRight((/** @type {any} */ inner, part) => ({ [part]: inner }), "acme");
}

/** @param {any} one @param {() => Promise<void>} reload */
function buttons(one, reload) {
  if (!view.limit.by || one.key === HIDDEN || !mayChange()) return null;
  const { name } = view.limit;
  const change = () => {
    const now = view.keys.find((/** @type {any} */ other) => other.key === one.key) ?? one;
    return edit(view.limit, { key: one.key, own: now.is_own ? ownNumbers(view.limit, now) : null }, reload);
  };
  const remove = () => askAndSend({ label: "Remove", question: `Remove the numbers of ${one.key}?`, effect: "The numbers of the limit apply to it again.", command: `holdfast limit unset --for=${quoted(one.key)} ${argument(name)}`, method: "PUT", path: path("v1", "limits", name, "keys", one.key), done: `For ${one.key}, the numbers of the limit apply again.`, reload });
  return [
    el("button", { type: "button", "data-verb": "set_limit", on: { click: change } }, one.is_own ? "Change…" : "Set…"), " ",
    one.is_own && el("button", { type: "button", "data-verb": "set_limit", on: { click: remove } }, "Remove…"),
  ];
}

/** @param {number} n @param {number | null} most */
function of(n, most) {
  return most === null ? number(n) : `${number(n)} of ${number(most)}`;
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name, query, reload }) {
  const answer = el("p", { class: "answer" });
  const set = el("p", { class: "muted" });
  const list = table(`Keys of limit ${name}`, [
    { name: "Key", cell: (/** @type {any} */ one) => one.key || "all jobs", cut: true },
    { name: "In use", cell: (one) => of(one.used, one.concurrent), number: true },
    { name: "May start now", cell: (one) => (one.tokens === null ? "–" : of(Math.floor(one.tokens), one.burst)), number: true },
    { name: "Waiting", cell: (one) => (one.waiting ? [`${number(one.waiting)}${one.waiting >= WAITING_MAX ? " or more" : ""}, since `, time(one.waiting_since, { ago: true })] : "–") },
    { name: "Numbers", cell: (one) => (one.is_own ? `its own: ${numbersOf(one)}` : "those of the limit"), cut: true },
    { name: "", cell: (one) => buttons(one, reload) },
  ], (one) => `${one.n} ${one.key}`);
  const none = el("div", null);
  const pages = el("p", null);
  const forKey = data.limit.by && mayChange() && el("button", { type: "button", "data-verb": "set_limit", on: { click: () => edit(view.limit, { key: "", own: null }, reload) } }, "Numbers for a key…");
  root.append(head(`Limit ${name}`, forKey, setButton(name, reload), removeButton(name, async () => go("/limits"))), answer, set, none, list.node, pages, command(`holdfast limit get ${argument(name)}`));
  view = { answer, set, list, none, pages, query, name };
  update(data);
}

/** @param {any} data */
function nothing({ limit, isHidden }) {
  if (isHidden) return empty("Only a token that covers all queues sees what is in use.");
  if (view.query.get("after")) return empty("There are no further keys.");
  const args = limit.by ? ` --args ${quoted(JSON.stringify(exampleArgs(limit.by)))}` : "";
  return empty("No job has drawn on it yet. A job names it when it is enqueued:", command(`holdfast job enqueue ask --queue chat${args} --limit ${quoted(`${limit.name}=1`)}`));
}

/** @param {any} data */
export function update(data) {
  const { limit, keys } = data;
  Object.assign(view, { limit, keys });
  replace(view.answer, `${numbersOf(limit)}.`);
  replace(view.set, "Set ", time(limit.updated_at, { ago: true }), ` by ${limit.updated_by}`);
  view.list.node.hidden = keys.length === 0;
  replace(view.none, keys.length ? null : nothing(data));
  view.list.update(keys);
  const last = keys.length === KEYS_MAX ? keys[KEYS_MAX - 1].key : null;
  const links = last === HIDDEN ? `These are the first ${count(KEYS_MAX, "key")}.` : pager(path("limits", view.name), {}, view.query.get("after"), last);
  replace(view.pages, links);
}

export function leave() {
  view = null;
}
