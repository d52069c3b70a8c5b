/**
 * Keeps controls in place while a page changes by itself.
 *
 * The control under the pointer stays where it is: the page is scrolled by as much as it would have moved. Lists keep their
 * order while a person points at them. A button that has moved or changed its meaning takes no click for a second.
 */

import { isDialogOpen } from "./dialog.js";
import { toast } from "./toast.js";

const CALM_MS = 1000;
/** For so long after an action of this person, its effects are shown at once. */
const OWN_MS = 3000;
const NEAR_PX = 3;
const CONTROLS = "button, input, select, summary, [role=button]";
let changedAt = -Infinity;
let ownAt = -Infinity;
/** Where each control was before the last change, and what it said. @type {Map<Element, {left: number, top: number, scrolled: number, says: string}>} */
let before = new Map();

/** Notes that this person has changed something: the page may follow at once. */
export function noteOwnAction() {
  ownAt = performance.now();
}

function isOwn() {
  return performance.now() - ownAt < OWN_MS;
}

/** Whether a list keeps its order and its rows, because a person works with it. @param {Element} node */
export function isHeld(node) {
  return !isOwn() && (node.matches(":hover, :focus-within") || isDialogOpen());
}

/** @param {Element} node */
function placeOf(node) {
  const { left, top } = node.getBoundingClientRect();
  return { left, top, scrolled: window.scrollY, says: `${node.textContent} ${/** @type {any} */ (node).disabled ?? ""}` };
}

/** Changes a page, and keeps what a person points at in place. @param {HTMLElement} root @param {() => void} change */
export function steadily(root, change) {
  before = new Map([...root.querySelectorAll(CONTROLS)].map((node) => [node, placeOf(node)]));
  const pointed = root.querySelector(`:is(${CONTROLS}, a[href]):hover`);
  const top = pointed?.getBoundingClientRect().top ?? 0;
  change();
  changedAt = performance.now();
  if (pointed?.isConnected) keepAt(root, pointed, top);
  else for (const name of ["padding-top", "min-height"]) root.style.removeProperty(name);
}

/** Scrolls, and adds room above or below where the page is too short for that. @param {HTMLElement} root @param {Element} pointed @param {number} top */
function keepAt(root, pointed, top) {
  const off = () => pointed.getBoundingClientRect().top - top;
  if (Math.abs(off()) < 1) return;
  window.scrollBy(0, off());
  const left = off();
  if (left <= -1) root.style.setProperty("padding-top", `${Number.parseFloat(root.style.paddingTop || "0") - left}px`);
  if (left >= 1) {
    root.style.setProperty("min-height", `${root.scrollHeight + left + window.innerHeight}px`);
    window.scrollBy(0, left);
  }
}

/** Refuses a click on what was something else, or somewhere else, a moment ago. @param {MouseEvent} event */
function guard(event) {
  const target = event.target instanceof Element ? event.target.closest(CONTROLS) : null;
  if (!target || event.detail === 0 || isOwn() || performance.now() - changedAt > CALM_MS) return;
  if (!target.closest("#page") || target.closest("dialog, [data-calm]")) return;
  const was = before.get(target);
  const now = placeOf(target);
  const isSame = was && was.says === now.says && Math.abs(was.left - now.left) < NEAR_PX;
  const stayed = was && [now.top - was.top, now.top + now.scrolled - was.top - was.scrolled].some((px) => Math.abs(px) < NEAR_PX);
  if (isSame && stayed) return;
  event.preventDefault();
  event.stopPropagation();
  toast("This has just changed, so the click did nothing. Look, and click again.");
}

document.addEventListener("click", guard, { capture: true });
