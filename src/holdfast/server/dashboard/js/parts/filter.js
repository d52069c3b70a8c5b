/** The filter of a list. It is in the address, so that a link shows another person the same. */

import { el, withQuery } from "../dom.js";
import { go } from "../router.js";

/**
 * @typedef {object} Field
 * @property {string} name The name in the address.
 * @property {string} label
 * @property {[string, string][]} [choices] Values and their words; without them it is a text.
 * @property {string[]} [known] Values to complete from.
 */

/** The present filter, as pairs. @param {URLSearchParams} query @param {string[]} names */
export function active(query, names) {
  return names.flatMap((name) => query.getAll(name).map((value) => /** @type {[string, string]} */ ([name, value])));
}

/** The query as an object, with lists where a name comes twice. @param {URLSearchParams} query */
export function asObject(query) {
  /** @type {Record<string, string | string[]>} */
  const found = {};
  for (const name of new Set(query.keys())) found[name] = query.getAll(name).length > 1 ? query.getAll(name) : (query.get(name) ?? "");
  return found;
}

/**
 * A row of fields. A change goes to the new address at once.
 * @param {string} base
 * @param {URLSearchParams} query
 * @param {Field[]} fields
 */
export function filterRow(base, query, fields) {
  const form = el("form", { class: "filter", role: "search", "aria-label": "Filter" });
  const apply = () => {
    const next = asObject(query);
    delete next.after;
    delete next.cursor;
    for (const field of fields) {
      next[field.name] = /** @type {HTMLInputElement} */ (form.querySelector(`[name="${field.name}"]`)).value.trim();
    }
    const href = withQuery(base, next);
    if (href !== location.pathname + location.search) go(href, { keepFocus: true });
  };
  for (const field of fields) form.append(control(field, query.get(field.name) ?? "", apply));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  if (fields.some((field) => query.get(field.name))) form.append(el("a", { href: base, class: "chip" }, "Clear all"));
  return form;
}

/** @param {Field} field @param {string} value @param {() => void} apply */
function control(field, value, apply) {
  const { name, choices } = field;
  if (choices) {
    const all = choices.some(([one]) => one === value) ? choices : [...choices, /** @type {[string, string]} */ ([value, value])];
    const options = all.map(([one, text]) => el("option", { value: one, selected: one === value }, text));
    return el("label", null, field.label, el("select", { name, on: { change: apply } }, ...options));
  }
  const list = `known-${name}`;
  const known = field.known && el("datalist", { id: list }, ...field.known.map((one) => el("option", { value: one })));
  return el("label", null, field.label, el("input", { name, value, list: known && list, maxlength: "200", autocomplete: "off", on: { change: apply } }), known);
}

/**
 * Chips that each drop one filter, for a list that is empty.
 * @param {string} base
 * @param {URLSearchParams} query
 * @param {[string, string][]} pairs
 */
export function dropChips(base, query, pairs) {
  const chips = pairs.map(([name, value]) => {
    const rest = new URLSearchParams([...query].filter(([key, one]) => !(key === name && one === value) && key !== "after" && key !== "cursor"));
    const text = rest.toString();
    return el("li", null, el("a", { class: "chip", href: text ? `${base}?${text}` : base }, `without ${name} = ${value} ✕`));
  });
  return el("ul", { class: "chips" }, ...chips);
}
