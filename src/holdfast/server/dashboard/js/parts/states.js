/** What a page shows while it loads, if there is nothing, and after an error. */

import { Problem } from "../api.js";
import { el, visible } from "../dom.js";
import { number } from "../format.js";

/** A command line with a button that copies it. @param {string} text */
export function command(text) {
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      // What is copied is what is shown: nothing unseen reaches a shell.
      await navigator.clipboard.writeText(visible(text));
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return el("div", { class: "command" }, el("code", { tabindex: "0" }, text), button);
}

/** A number that leads to what it counts. A zero leads nowhere. @param {string} href @param {number | undefined} n */
export function countLink(href, n) {
  return n ? el("a", { href }, number(n)) : el("span", { class: "muted" }, number(0));
}

/** @param {string} text @param {...import("../dom.js").Child} more */
export function empty(text, ...more) {
  return el("div", { class: "empty" }, el("p", null, text), ...more);
}

/**
 * Says what went wrong and what to do.
 * @param {unknown} error
 * @param {(() => void) | null} [retry]
 */
export function problemBox(error, retry) {
  const known = error instanceof Problem ? error : null;
  const again = retry && el("button", { type: "button", on: { click: retry } }, "Try again");
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", null, known ? known.message : "This page has an error of its own."),
    el("p", null, known ? known.action : String(/** @type {any} */ (error)?.message ?? error)),
    known?.requestId && el("p", { class: "muted" }, `Request ${known.requestId} · ${known.code}`),
    again,
  );
}

/** @param {number} rows */
export function skeleton(rows) {
  return el("div", { "aria-hidden": "true" }, ...Array.from({ length: rows }, () => el("div", { class: "skeleton" })));
}

/**
 * The head of a page: its title, and buttons.
 * @param {import("../dom.js").Child} title
 * @param {...import("../dom.js").Child} actions
 */
export function head(title, ...actions) {
  return el("div", { class: "head" }, el("h1", { tabindex: "-1" }, title), el("div", { class: "actions" }, ...actions));
}

/** Names and values. @param {...[import("../dom.js").Child, import("../dom.js").Child]} pairs */
export function facts(...pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...shown.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}
