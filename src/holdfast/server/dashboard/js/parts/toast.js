/** Short messages at the edge of the page. */

import { el } from "../dom.js";

const SECONDS = 8;

/**
 * Says what has happened.
 * @param {string} text
 * @param {{href?: string, label?: string, stays?: boolean}} [more]
 */
export function toast(text, more = {}) {
  const box = document.getElementById("toasts");
  const close = el("button", { type: "button", "aria-label": "Close this message", on: { click: () => node.remove() } }, "✕");
  const node = el("div", { class: "toast" }, el("span", null, text), more.href && el("a", { href: more.href }, more.label ?? "Show"), close);
  box?.append(node);
  if (!more.stays) setTimeout(() => node.remove(), SECONDS * 1000);
  return node;
}
