/** Policies: what is set, and what follows from it. */

import { get } from "../api.js";
import { el, replace } from "../dom.js";
import { argument, duration, quoted } from "../format.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";

/** @type {any} */
let view = null;

export const title = () => "Policies";
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const found = await get("/v1/policies", signal);
  const rows = Object.entries(found.policies).flatMap(([scope, named]) => Object.entries(named).map(([name, fields]) => ({ scope: scope.replace(/s$/, ""), name, fields, by: "operators" })));
  const declared = Object.entries(found.declarations).map(([name, one]) => ({ scope: "kind", name, fields: one.policy ?? {}, by: "its handler" }));
  return [...rows, ...declared];
}

/** @param {string} name @param {any} value */
function setting(name, value) {
  return `${name.replace(/_ms$/, "").replaceAll("_", " ")}: ${name.endsWith("_ms") && value !== null ? duration(Number(value)) : String(value)}`;
}

/** @param {string} scope @param {string} name @param {Element} place */
async function showEffective(scope, name, place) {
  const found = await get(`/v1/policies/${scope}s/${encodeURIComponent(name)}`);
  const list = table(`Effective policy of ${scope} ${name}`, [
    { name: "Field", cell: (/** @type {any} */ one) => one.name ?? one.field },
    { name: "Value", cell: (one) => JSON.stringify(one.value) },
    { name: "From", cell: (one) => String(one.source ?? "") },
  ], (one) => one.name ?? one.field);
  list.update(found.fields);
  replace(place, el("h2", null, `Effective policy of ${scope} ${name}`), list.node, command(`holdfast policy show ${scope === "tier" ? `--tier=${quoted(name)}` : argument(name)}`));
}

/** @param {HTMLElement} root @param {any} data */
export function draw(root, data) {
  const effective = el("div", { "aria-live": "polite" });
  const list = table("Policies", [
    { name: "Of", cell: (/** @type {any} */ row) => row.scope },
    { name: "Name", cell: (row) => row.name, cut: true },
    { name: "Set by", cell: (row) => row.by },
    { name: "Fields", cell: (row) => el("span", null, ...Object.entries(row.fields).map(([name, value]) => el("div", null, setting(name, value)))) },
    { name: "", cell: (row) => el("button", { type: "button", on: { click: () => showEffective(row.scope, row.name, effective) } }, "Effective values") },
  ], (row) => `${row.by}-${row.scope}-${row.name}`);
  const none = empty("No policy is set: every kind has the built-in one. An admin sets one with:", command("holdfast policy set KIND lease_ttl=5m"));
  root.append(head("Policies"), none, list.node, effective);
  view = { list, none };
  update(data);
}

/** @param {any} data */
export function update(data) {
  view.none.hidden = data.length > 0;
  view.list.node.hidden = data.length === 0;
  view.list.update(data);
}

export function leave() {
  view = null;
}
