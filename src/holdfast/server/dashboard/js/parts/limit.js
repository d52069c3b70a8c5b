/** The form that sets the numbers of a limit or of one of its keys, and the words for them. */

import { get, send } from "../api.js";
import { el, path, replace } from "../dom.js";
import { argument, number, quoted, rate, ratio } from "../format.js";
import { can, hasAllQueues } from "../me.js";
import { sendButton } from "./confirm.js";
import { dialog } from "./dialog.js";
import { command, problemBox } from "./states.js";
import { toast } from "./toast.js";

/** @typedef {{concurrent: number | null, rate: string | null, burst: number | null}} Numbers */
/** @typedef {{key: string, own: Partial<Numbers> | null}} Key A key, and the numbers that it has of its own. An empty key is asked for. */

/** Limits are of no queue: only a person who may use all queues changes them. */
export function mayChange() {
  return can("set_limit") && hasAllQueues();
}

/** The numbers in words. @param {any} limit */
export function numbersOf(limit) {
  const parts = [limit.concurrent !== null && `${number(limit.concurrent)} at once`, limit.rate !== null && `${rate(limit.rate)}, up to ${number(limit.burst)} at once after a pause`];
  return parts.filter(Boolean).join("; ") + (limit.by ? `, for each ${limit.by}` : "");
}

/** The numbers of a key that differ from those of its limit. @param {any} limit @param {any} key @returns {Partial<Numbers>} */
export function ownNumbers(limit, key) {
  const hasOwnRate = key.rate !== limit.rate || key.burst !== limit.burst;
  return { ...(key.concurrent === limit.concurrent ? {} : { concurrent: key.concurrent }), ...(hasOwnRate ? { rate: key.rate, burst: key.burst } : {}) };
}

/** A burst that is what the rate gives in a second, as it is without one. @param {Partial<Numbers>} numbers */
function isUsualBurst(numbers) {
  const found = ratio(numbers.rate);
  return found !== null && Number(numbers.burst) === Math.max(1, Math.ceil((found.n * 1000) / found.ms));
}

/** A button that removes a limit. @param {string} name @param {() => Promise<void>} reload */
export function removeButton(name, reload) {
  if (!hasAllQueues()) return null;
  return sendButton({ verb: "remove_limit", label: "Remove", question: `Remove limit ${name}?`, effect: "Jobs that draw on it go on without it.", command: `holdfast limit unset ${argument(name)}`, method: "DELETE", path: path("v1", "limits", name), done: `Limit ${name} is removed.`, reload });
}

/** A button that opens the form of a limit as it is now. Without a name, of a new one. @param {string} name @param {() => Promise<void>} reload */
export function setButton(name, reload) {
  if (!mayChange()) return null;
  const open = async () => {
    try {
      await edit(name ? (await get(path("v1", "limits", name))).limit : null, null, reload);
    } catch (/** @type {any} */ error) {
      toast(`${error.message} ${error.action ?? ""}`);
    }
  };
  return el("button", { type: "button", "data-verb": "set_limit", on: { click: open } }, name ? "Change…" : "Set a limit…");
}

/** @param {string} id @param {string} label @param {string | number | null | undefined} value @param {string} placeholder */
function field(id, label, value, placeholder) {
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: `limit-${id}`, value: value ?? "", placeholder, maxlength: "200", autocomplete: "off", spellcheck: "false" }));
  return { input, nodes: [el("label", { for: `limit-${id}` }, label), input], text: () => input.value.trim() };
}

/** Whether a text stands for a whole number, or for none. @param {string} text */
function isCount(text) {
  return text === "" || /^[1-9]\d{0,9}$/.test(text);
}

/**
 * Asks for the numbers of a limit or of one of its keys, shows the command, and saves them.
 * @param {any} limit Null for a new one.
 * @param {Key | null} key
 * @param {() => Promise<void>} reload
 */
export async function edit(limit, key, reload) {
  const old = /** @type {Partial<Numbers>} */ (key ? (key.own ?? {}) : (limit ?? {}));
  const subject = key?.key ? `Numbers of ${key.key} in limit ${limit.name}` : key ? `Numbers for a key of limit ${limit.name}` : limit ? `Limit ${limit.name}` : "Set a limit";
  const fields = {
    name: field("name", "Name", limit?.name, "such as openai"),
    key: field("key", `Key (a value of ${limit?.by ?? "the argument"})`, key?.key, "such as acme"),
    concurrent: field("concurrent", "At once: units that may be held", old.concurrent, "no limit"),
    rate: field("rate", "Rate: units that may start in a time", old.rate, "no limit; such as 600/1m"),
    burst: field("burst", "Burst: units that may start at once after a pause", isUsualBurst(old) ? "" : old.burst, "what the rate gives in a second"),
    by: field("by", "For each value of an argument", limit?.by, "all jobs share it; such as args.tenant"),
  };
  const shown = [!limit && "name", key && !key.key && "key", "concurrent", "rate", "burst", !key && "by"].filter(Boolean).map((name) => fields[/** @type {keyof typeof fields} */ (name)]);
  const place = el("div", { role: "status" });
  const problem = el("div", null);
  const save = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-confirm": true }, "Save"));

  function preview() {
    const wrong = [fields.concurrent, fields.burst].filter((one) => !isCount(one.text()));
    for (const one of [fields.concurrent, fields.burst]) one.input.setAttribute("aria-invalid", String(wrong.includes(one)));
    const isNamed = fields.name.text() !== "" && (!key || fields.key.text() !== "");
    const hasNumbers = fields.concurrent.text() !== "" || fields.rate.text() !== "";
    save.disabled = wrong.length > 0 || !isNamed || !hasNumbers;
    const hint = wrong.length ? "Write whole numbers from 1." : hasNumbers ? "" : "Give a number at once, a rate or both.";
    replace(place, hint ? el("p", { class: "muted" }, hint) : isNamed ? command(typed()) : null);
  }

  /** The same on the command line. */
  function typed() {
    const options = [key && `--for=${quoted(fields.key.text())}`, ...["concurrent", "rate", "burst", "by"].map((name) => {
      const text = fields[/** @type {keyof typeof fields} */ (name)].text();
      return text && !(name === "by" && key) && `--${name} ${quoted(text)}`;
    })].filter(Boolean).join(" ");
    const name = fields.name.text();
    return name.startsWith("-") ? `holdfast limit set ${options} ${argument(name)}` : `holdfast limit set ${quoted(name)} ${options}`;
  }

  /** @param {(value: boolean | null) => void} close */
  async function run(close) {
    save.disabled = true;
    const counted = (/** @type {string} */ text) => (text ? Number(text) : null);
    const body = { concurrent: counted(fields.concurrent.text()), rate: fields.rate.text() || null, burst: counted(fields.burst.text()), ...(key ? {} : { by: fields.by.text() || null }) };
    const base = path("v1", "limits", fields.name.text());
    try {
      await send("PUT", key ? base + path("keys", fields.key.text()) : base, body);
    } catch (error) {
      replace(problem, problemBox(error));
      save.disabled = false;
      return;
    }
    close(true);
    toast(`${key ? `Limit ${fields.name.text()} has numbers of its own for ${fields.key.text()}.` : `Limit ${fields.name.text()} is set.`} The numbers hold from the next claim on.`);
    await reload();
  }

  await dialog(subject, (close) => {
    for (const one of shown) one.input.addEventListener("input", preview);
    save.addEventListener("click", () => run(close));
    shown[0].input.setAttribute("autofocus", "");
    preview();
    return [
      el("p", { class: "muted" }, "Jobs that are held already go on, also if they are more than the new number."),
      ...shown.flatMap((one) => one.nodes), place, problem,
      el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => close(null) } }, "Keep"), save),
    ];
  });
}
