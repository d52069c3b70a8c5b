/** Policies: what is set, and what follows from it. */

import { get, getIfThere } from "../api.js";
import { el, link, path, replace, setText } from "../dom.js";
import { argument, count, quoted } from "../format.js";
import { can } from "../me.js";
import { dialog } from "../parts/dialog.js";
import { editPolicy, shownValue, sourceWord } from "../parts/policy.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";

/** @type {any} */
let view = null;

export const title = () => "Policies";
export const watch = () => null;

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const found = await get("/v1/policies", signal);
  const rows = Object.entries(found.policies).flatMap(([scope, named]) => Object.entries(named).map(([name, fields]) => ({ scope, name, fields, by: "operators" })));
  const declared = Object.entries(found.declarations).map(([name, one]) => ({ scope: "kind", name, fields: one.policy ?? {}, by: "its handler" }));
  return [...rows, ...declared];
}

/** @param {string} name @param {any} value */
function setting(name, value) {
  return `${name.replace(/_ms$/, "").replaceAll("_", " ")}: ${shownValue(name, value)}`;
}

/** @param {string} scope @param {string} name @param {Element} place */
async function showEffective(scope, name, place) {
  const found = await get(path("v1", "policies", `${scope}s`, name));
  const list = table(`Effective policy of ${scope} ${name}`, [
    { name: "Field", cell: (/** @type {any} */ one) => one.name.replace(/_ms$/, "").replaceAll("_", " ") },
    { name: "Value", cell: (one) => shownValue(one.name, one.value), number: true },
    { name: "From", cell: (one) => sourceWord(one.source) },
  ], (one) => one.name);
  list.update(found.fields);
  replace(place, el("h2", null, `Effective policy of ${scope} ${name}`), list.node, command(`holdfast policy show ${scope === "tier" ? `--tier=${quoted(name)}` : argument(name)}`));
}

/** Asks whose policy to set. @param {() => Promise<void>} reload */
async function choose(reload) {
  const kinds = (await getIfThere("/v1/kinds", undefined, { kinds: [] })).kinds;
  const scope = /** @type {HTMLSelectElement} */ (el("select", { id: "policy-scope" }, el("option", { value: "kind" }, "a kind"), el("option", { value: "tier" }, "a tier")));
  const name = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "policy-name", list: "policy-kinds", maxlength: "200", autocomplete: "off", autofocus: true }));
  const target = await dialog("Set a policy", (close) => [
    el("label", { for: "policy-scope" }, "Policy of"), scope,
    el("label", { for: "policy-name" }, "Name"), name,
    el("datalist", { id: "policy-kinds" }, ...kinds.map((/** @type {any} */ one) => el("option", { value: one.kind }))),
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => close(null) } }, "Close"),
      el("button", { type: "button", "data-next": true, on: { click: () => name.value.trim() && close({ scope: /** @type {"kind" | "tier"} */ (scope.value), name: name.value.trim() }) } }, "Continue…")),
  ]);
  if (target) await editPolicy(target, reload);
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { reload }) {
  const effective = el("div", { "aria-live": "polite" });
  const mayEdit = can("policies");
  const list = table("Policies", [
    { name: "Name", cell: (/** @type {any} */ row) => (row.scope === "kind" ? link(path("kinds", row.name), row.name) : row.name), cut: true },
    { name: "Of a", cell: (row) => row.scope },
    { name: "Set by", cell: (row) => row.by },
    { name: "Fields", cell: (row) => el("span", null, ...Object.entries(row.fields).map(([name, value]) => el("div", null, setting(name, value)))) },
    { name: "", cell: (row) => [
      el("button", { type: "button", on: { click: () => showEffective(row.scope, row.name, effective) } }, "Effective values"), " ",
      mayEdit && el("button", { type: "button", "data-verb": "policies", on: { click: () => editPolicy(row, reload) } }, "Edit…"),
    ] },
  ], (row) => `${row.by}-${row.scope}-${row.name}`);
  const answer = el("p", { class: "answer" });
  const none = empty("No policy is set: every kind has the built-in one. An admin sets one here or with:", command("holdfast policy set KIND lease_ttl=5m"));
  root.append(head("Policies", mayEdit && el("button", { type: "button", "data-verb": "policies", on: { click: () => choose(reload) } }, "Set a policy…")), answer, none, list.node, effective);
  view = { list, none, answer };
  update(data);
}

/** @param {any} data */
export function update(data) {
  const byOperators = data.filter((/** @type {any} */ row) => row.by === "operators").length;
  setText(view.answer, data.length ? `${count(byOperators, "policy", "policies")} set by operators, ${count(data.length - byOperators, "policy", "policies")} declared by handlers. What operators set comes first.` : "");
  view.none.hidden = data.length > 0;
  view.list.node.hidden = data.length === 0;
  view.list.update(data);
}

export function leave() {
  view = null;
}
