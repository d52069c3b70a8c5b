/** A question before something that is hard to undo, and the request that does it. */

import { send } from "../api.js";
import { el, whileDisabled } from "../dom.js";
import { can } from "../me.js";
import { dialog, typedNumber } from "./dialog.js";
import { command } from "./states.js";
import { toast } from "./toast.js";

/**
 * A button that asks and sends. It is not drawn for those who may not use it.
 * @param {object} options
 * @param {string} options.verb As `/v1/me` lists it.
 * @param {string} options.label
 * @param {string} [options.question] Without one, nothing is asked.
 * @param {string} [options.effect]
 * @param {string} [options.command]
 * @param {string} [options.method]
 * @param {string} options.path
 * @param {number} [options.jobs] How many jobs it changes. If they are many, the number has to be typed.
 * @param {string | ((answer: any) => string)} options.done
 * @param {() => Promise<void>} options.reload
 */
export function sendButton(options) {
  if (!can(options.verb)) return null;
  const button = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-verb": options.verb }, options.label + (options.question ? "…" : "")));
  button.addEventListener("click", () => whileDisabled(button, () => askAndSend(options)));
  return button;
}

/** Asks and sends, and says what was done. @param {Omit<Parameters<typeof sendButton>[0], "verb">} options */
export async function askAndSend(options) {
  if (options.question && !(await ask(options))) return;
  try {
    const answer = await send(options.method ?? "POST", options.path, {});
    toast(typeof options.done === "string" ? options.done : options.done(answer));
  } catch (/** @type {any} */ error) {
    toast(`${error.message} ${error.action ?? ""}`);
  }
  await options.reload();
}

/** @param {{question?: string, effect?: string, command?: string, label: string, jobs?: number}} options @returns {Promise<boolean | null>} */
function ask(options) {
  return dialog(options.question ?? "", (close) => {
    const button = /** @type {HTMLButtonElement} */ (el("button", { type: "button", class: "danger", "data-confirm": true, on: { click: () => close(true) } }, options.label));
    return [
      options.effect ? el("p", null, options.effect) : null,
      options.command ? command(options.command) : null,
      ...typedNumber(options.jobs ?? 0, button),
      el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: () => close(null) } }, "Keep"), button),
    ];
  });
}
