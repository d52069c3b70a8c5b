/** Dialogs. The browser keeps the focus inside, and gives it back. */

import { el } from "../dom.js";

/**
 * Shows a dialog, and returns its value when it is closed. `content` gets a function that closes it with a value.
 * @template T
 * @param {string} title
 * @param {(close: (value: T | null) => void) => (Node | null)[]} content
 * @returns {Promise<T | null>}
 */
export function dialog(title, content) {
  return new Promise((done) => {
    const node = /** @type {HTMLDialogElement} */ (el("dialog", { "aria-labelledby": "dialog-title" }));
    /** @type {T | null} */
    let answer = null;
    const close = (/** @type {T | null} */ value) => {
      answer = value;
      node.close();
    };
    node.append(el("h2", { id: "dialog-title" }, title), ...content(close).filter((one) => one !== null));
    node.addEventListener("close", () => {
      node.remove();
      done(answer);
    });
    document.body.append(node);
    node.showModal();
    /** @type {HTMLElement | null} */ (node.querySelector("[autofocus]"))?.focus();
  });
}

/** Above this many jobs, the number has to be typed. */
const TYPED_ABOVE = 10;

/** A field for the number of jobs, if there are many. The button can be used once the number is typed. @param {number} jobs @param {HTMLButtonElement} button */
export function typedNumber(jobs, button) {
  if (jobs <= TYPED_ABOVE) return [];
  const typed = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "typed", inputmode: "numeric", autocomplete: "off" }));
  button.disabled = true;
  typed.addEventListener("input", () => (button.disabled = typed.value.replace(/\D/g, "") !== String(jobs)));
  return [el("label", { for: "typed" }, `Type ${jobs} to confirm`), typed];
}

/** Whether a dialog is open. */
export function isDialogOpen() {
  return document.querySelector("dialog[open]") !== null;
}
