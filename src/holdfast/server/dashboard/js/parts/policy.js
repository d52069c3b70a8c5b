/** The form that sets the policy of a kind or a tier. What changes is shown before it is saved. */

import { get, send } from "../api.js";
import { el, path, replace } from "../dom.js";
import { argument, count, duration, quoted } from "../format.js";
import { dialog } from "./dialog.js";
import { command, problemBox } from "./states.js";
import { toast } from "./toast.js";

/** @typedef {{name: string, value: any, source: string, layers: Record<string, any>}} PolicyField */
/** @typedef {{scope: "kind" | "tier", name: string}} Target */
/** @typedef {{field: PolicyField, text: string, value: any}} Change A value of null unsets the field. */

/** @type {Record<string, string[]>} */
const CHOICES = { on_exhausted: ["dead_letter", "fail"], signed: ["none", "liveness", "all"], requires_operator_coverage: ["true", "false"] };
const UNITS = /** @type {const} */ ([["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000], ["ms", 1]]);
const SOURCES = { tier: "built in for the tier", default: "built in", handler: "its handler", operator_kind: "set for the kind", operator_tier: "set for the tier", derived: "follows from others" };
/** Fields of which a smaller value ends or stalls jobs sooner. */
const LOWERED = new Set(["heartbeat_interval_ms", "missed_beats_max", "lease_ttl_ms", "resume_window_ms", "attempts_max", "cancel_grace_ms", "progress_timeout_ms"]);
const STRICTNESS = CHOICES.signed;

/** The name that people and commands use: without the unit. @param {string} name */
function publicName(name) {
  return name.replace(/_ms$/, "");
}

/** A value as people write it: 90000 is 90s. @param {string} name @param {any} value */
function written(name, value) {
  if (value === null || value === undefined) return "";
  if (!name.endsWith("_ms")) return String(value);
  const [unit, size] = UNITS.find(([, ms]) => value % ms === 0 && value >= ms) ?? ["ms", 1];
  return value === 0 ? "0s" : `${value / size}${unit}`;
}

/** A value as people read it. @param {string} name @param {any} value */
export function shownValue(name, value) {
  if (value === null || value === undefined) return "none";
  return name.endsWith("_ms") ? duration(Number(value)) : String(value).replaceAll("_", " ");
}

/** @param {string} source */
export function sourceWord(source) {
  return SOURCES[/** @type {keyof typeof SOURCES} */ (source)] ?? source;
}

/** The value that a text stands for, as the ledger keeps it. Undefined if it stands for none. @param {string} name @param {string} text */
function parseValue(name, text) {
  if (name.endsWith("_ms")) {
    const found = /^(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)$/.exec(text);
    return found ? Number(found[1]) * (UNITS.find(([unit]) => unit === found[2])?.[1] ?? 1) : undefined;
  }
  if (name in CHOICES) return CHOICES[name].includes(text) ? (name === "requires_operator_coverage" ? text === "true" : text) : undefined;
  return /^\d{1,6}$/.test(text) ? Number(text) : undefined;
}

/** What goes into the request: durations as texts, as they were written. @param {Change} change */
function sentValue({ field, text, value }) {
  return field.name.endsWith("_ms") && value !== null ? text : value;
}

/** Whether a change makes something end sooner, or weakens what has to be signed. @param {Change} change */
function lowers({ field, value }) {
  if (field.name === "signed") return value !== null && STRICTNESS.indexOf(value) < STRICTNESS.indexOf(field.value);
  return LOWERED.has(field.name) && value !== null && field.value !== null && value < field.value;
}

/** The value after a field is unset. @param {PolicyField} field */
function below(field) {
  return "handler" in field.layers ? `${shownValue(field.name, field.layers.handler)}, as its handler says` : "the built-in value";
}

/**
 * Asks for values, shows what changes, and saves it.
 * @param {Target} target
 * @param {() => Promise<void>} reload
 */
export async function editPolicy(target, reload) {
  const base = path("v1", "policies", `${target.scope}s`, target.name);
  const own = `operator_${target.scope}`;
  const [found, kinds] = await Promise.all([get(base), target.scope === "kind" ? get("/v1/kinds") : null]);
  const fields = /** @type {PolicyField[]} */ (found.fields).filter((field) => field.name !== "stall_after_ms");
  const counts = kinds?.kinds.find((/** @type {any} */ one) => one.kind === target.name)?.counts ?? {};
  const live = ["queued", "claimed", "running", "stalled"].reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  await dialog(`Policy of ${target.scope} ${target.name}`, (close) => form(target, base, own, fields, live, async () => {
    close(true);
    toast(`The policy of ${target.scope} ${target.name} is saved. Leases issued from now on follow it.`);
    await reload();
  }, () => close(null)));
}

/** @param {PolicyField} field @param {string} own @param {() => void} changed */
function control(field, own, changed) {
  const value = written(field.name, field.layers[own]);
  const id = `policy-${field.name}`;
  const options = CHOICES[field.name];
  const made = options
    ? el("select", { id, on: { change: changed } }, el("option", { value: "" }, "not set"), ...options.map((one) => el("option", { value: one, selected: one === value }, one)))
    : el("input", { type: "text", id, value, placeholder: "not set", maxlength: "20", autocomplete: "off", on: { input: changed } });
  return /** @type {HTMLInputElement} */ (made);
}

/**
 * @param {Target} target @param {string} base @param {string} own @param {PolicyField[]} fields @param {number} live
 * @param {() => Promise<void>} saved @param {() => void} cancel
 */
function form(target, base, own, fields, live, saved, cancel) {
  const inputs = new Map(fields.map((field) => [field, control(field, own, preview)]));
  const changesPlace = el("div", { role: "status", "data-changes": true });
  const problem = el("div", null);
  const save = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-confirm": true, on: { click: run } }, "Save"));
  const rows = fields.map((field) => el("tr", null,
    el("td", null, el("label", { for: `policy-${field.name}` }, publicName(field.name).replaceAll("_", " "))),
    el("td", null, `${shownValue(field.name, field.value)} · ${sourceWord(field.source)}`),
    el("td", null, inputs.get(field)),
  ));
  const heads = ["Field", "Now", `Set for this ${target.scope}`].map((name) => el("th", { scope: "col" }, name));

  /** @returns {Change[]} */
  function changes() {
    return fields.flatMap((field) => {
      const text = inputs.get(field)?.value.trim() ?? "";
      if (text === written(field.name, field.layers[own])) return [];
      return [{ field, text, value: text ? parseValue(field.name, text) : null }];
    });
  }

  function preview() {
    const found = changes();
    const wrong = found.filter((one) => one.value === undefined);
    for (const [field, input] of inputs) input.setAttribute("aria-invalid", String(wrong.some((one) => one.field === field)));
    save.disabled = found.length === 0 || wrong.length > 0;
    const isLower = found.some(lowers);
    save.className = isLower ? "danger" : "";
    const items = found.map((one) => {
      const name = publicName(one.field.name).replaceAll("_", " ");
      if (one.value === undefined) return el("li", null, `${name}: “${one.text}” is no value. ${one.field.name.endsWith("_ms") ? "Write a duration such as 30s, 5m or 1h." : "Write a whole number."}`);
      return el("li", null, `${name}: ${shownValue(one.field.name, one.field.value)} → ${one.value === null ? below(one.field) : shownValue(one.field.name, one.value)}`, lowers(one) ? el("strong", null, " (lower)") : null);
    });
    replace(changesPlace, el("h3", null, "What changes"), items.length ? el("ul", null, ...items) : el("p", { class: "muted" }, "Nothing yet."),
      target.scope === "kind" && items.length ? el("p", null, `${count(live, "job")} of this kind ${live === 1 ? "is" : "are"} not over. Leases issued from now on follow the new values.`) : null,
      isLower ? el("p", null, "A lower value makes jobs stall or end sooner, or needs fewer signatures.") : null,
      ...commands(target, found).map((one) => command(one)));
  }

  async function run() {
    save.disabled = true;
    try {
      await send("PATCH", base, Object.fromEntries(changes().map((one) => [publicName(one.field.name), sentValue(one)])));
    } catch (error) {
      replace(problem, problemBox(error));
      save.disabled = false;
      return;
    }
    await saved();
  }

  preview();
  return [
    el("p", { class: "muted" }, "A field that is not set here comes from the handler's declaration, or is built in."),
    el("div", { class: "box", tabindex: "0", role: "region", "aria-label": "Fields" }, el("table", { class: "form" }, el("thead", null, el("tr", null, ...heads)), el("tbody", null, ...rows))),
    changesPlace,
    problem,
    el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: cancel } }, "Keep"), save),
  ];
}

/** The same on the command line. @param {Target} target @param {Change[]} found */
function commands(target, found) {
  const whose = target.scope === "tier" ? `--tier=${quoted(target.name)}` : argument(target.name);
  const set = found.filter((one) => one.value !== null && one.value !== undefined).map((one) => `${publicName(one.field.name)}=${quoted(one.text)}`);
  const unset = found.filter((one) => one.value === null).map((one) => publicName(one.field.name));
  return [...(set.length ? [`holdfast policy set ${whose} ${set.join(" ")}`] : []), ...(unset.length ? [`holdfast policy unset ${whose} ${unset.join(" ")}`] : [])];
}
