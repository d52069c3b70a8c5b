/** Keys and seals. */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, path, replace } from "../dom.js";
import { number } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { command, empty, facts, head } from "../parts/states.js";
import { table } from "../parts/table.js";

/** @type {any} */
let view = null;

export const title = () => "Keys and seals";
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const [keys, found] = await Promise.all([get("/v1/keys", signal), get("/v1/head", signal)]);
  return { keys: keys.keys, head: found.head };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { reload }) {
  const newest = el("div", null);
  const keys = table("Keys", [
    { name: "Key", cell: (/** @type {any} */ key) => el("span", { class: "mono" }, key.key_id) },
    { name: "Role", cell: (key) => key.role },
    { name: "Name", cell: (key) => key.name, cut: true },
    { name: "Public key", cell: (key) => el("span", { class: "mono" }, key.public), cut: true },
    { name: "Enrolled", cell: (key) => [time(key.enrolled_at, { ago: true }), ` by ${key.enrolled_by}`] },
    { name: "Vouched for by", cell: (key) => (key.vouched_by === key.key_id ? "itself" : key.vouched_by) },
    { name: "Revoked", cell: (key) => (key.revoked_at ? [time(key.revoked_at, { ago: true }), ` by ${key.revoked_by}`] : "") },
    { name: "", cell: (key) => (key.revoked_at ? null : sendButton({ verb: "keys", label: "Revoke", question: `Revoke the key ${key.key_id}?`, effect: `Nothing that ${key.role} ${key.name} signs with it is accepted any more. This cannot be undone.`, command: `holdfast key revoke ${key.key_id}`, path: path("v1", "keys", key.key_id, "revoke"), done: "The key is revoked.", reload })) },
  ], (key) => key.key_id);
  const none = empty("No key is enrolled, so nothing is signed. Begin with a server key:", command("holdfast key new main --role server"));
  root.append(head("Keys and seals"), el("h2", null, "The newest head"), newest, el("h2", null, "Keys"), none, keys.node);
  view = { newest, keys, none };
  update(data);
}

/** @param {any} data */
export function update({ keys, head: newest }) {
  replace(view.newest, newest
    ? el("div", null, facts(["sealed", time(newest.at, { ago: true })], ["leaves", number(newest.size)], ["last position", number(newest.pos)], ["root", el("span", { class: "mono" }, newest.root)]), el("p", { class: "muted" }, "The signed note. Keep a copy elsewhere: with it, a changed history is found later."), el("pre", { tabindex: "0" }, newest.note))
    : empty("Nothing is sealed yet. Sealing needs a server key:", command("holdfast seal")));
  view.none.hidden = keys.length > 0;
  view.keys.node.hidden = keys.length === 0;
  view.keys.update(keys);
}

export function leave() {
  view = null;
}
