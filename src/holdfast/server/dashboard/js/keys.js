/** The keyboard. Everything works without it too, and it can be switched off. */

import { showTimes } from "./clock.js";
import { nextTimeForm, store, stored } from "./format.js";
import { toggle } from "./live.js";
import { isDialogOpen } from "./parts/dialog.js";
import { toast } from "./parts/toast.js";
import { go } from "./router.js";

const PAGES = { o: "/", j: "/jobs", q: "/queues", k: "/kinds", w: "/workers", a: "/attention", d: "/dead-letters", e: "/events" };
const PREFIX_MS = 1500;
let prefixed = -Infinity;

export function keysAreOn() {
  return stored("holdfast.keys") !== "off";
}

/** @param {boolean} isOn */
export function switchKeys(isOn) {
  store("holdfast.keys", isOn ? "on" : "off");
}

/** Moves the focus to another row of the first table. @param {number} step */
function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step];
  /** @type {HTMLElement | null} */ (next?.querySelector("a"))?.focus();
}

/** @param {boolean} isRange */
function select(isRange) {
  const row = document.activeElement?.closest("tr");
  const box = /** @type {HTMLInputElement | null} */ (row?.querySelector("input[type=checkbox]"));
  box?.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: isRange }));
}

/** @type {Record<string, (event: KeyboardEvent) => void>} */
const KEYS = {
  "?": () => go("/help"),
  "/": () => document.getElementById("find-text")?.focus(),
  l: () => toggle(),
  t: () => {
    toast(`Times are ${nextTimeForm()}.`);
    showTimes();
  },
  j: () => moveRow(1),
  k: () => moveRow(-1),
  x: () => select(false),
  X: () => select(true),
  v: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-as-table]"))?.click(),
  "[": () => /** @type {HTMLElement | null} */ (document.querySelector("[data-page=previous]"))?.click(),
  "]": () => /** @type {HTMLElement | null} */ (document.querySelector("[data-page=next]"))?.click(),
};

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen() || !keysAreOn()) return;
    if (target.closest("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const page = performance.now() - prefixed < PREFIX_MS ? PAGES[/** @type {keyof typeof PAGES} */ (event.key)] : undefined;
    prefixed = event.key === "g" ? performance.now() : -Infinity;
    if (page) go(page);
    else if (KEYS[event.key] && !target.closest("[data-own-keys]")) KEYS[event.key](event);
    else return;
    event.preventDefault();
  });
}
