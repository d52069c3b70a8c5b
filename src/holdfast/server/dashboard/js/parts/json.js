/** JSON as text. Numbers are shown as they were written. */

import { ExactNumber } from "../api.js";
import { el } from "../dom.js";

const CHARACTERS_MAX = 200_000;

/** @param {any} value @param {string} indent @returns {string} */
export function format(value, indent = "") {
  if (value instanceof ExactNumber) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = `${indent}  `;
  const isList = Array.isArray(value);
  const parts = isList ? value.map((one) => inner + format(one, inner)) : Object.entries(value).map(([key, one]) => `${inner}${JSON.stringify(key)}: ${format(one, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  return parts.length ? `${open}\n${parts.join(",\n")}\n${indent}${close}` : open + close;
}

/** A block with JSON. A hidden value says who may see it. @param {any} value */
export function jsonBlock(value) {
  if (value === "[redacted]") return el("p", { class: "muted", title: "Your role may not see this. Ask an operator." }, "[redacted]: your role may not see this.");
  const text = format(value);
  const isCut = text.length > CHARACTERS_MAX;
  const block = el("pre", { tabindex: "0" }, isCut ? text.slice(0, CHARACTERS_MAX) : text);
  return isCut ? el("div", null, block, el("p", { class: "muted" }, "The rest is cut. The command line shows all of it.")) : block;
}

/** An error: its class and message first, then the traceback. @param {any} error */
export function errorBlock(error) {
  if (error === null || typeof error !== "object" || Array.isArray(error) || error instanceof ExactNumber) return jsonBlock(error);
  const { type, message, traceback, ...rest } = error;
  if (message === undefined) return jsonBlock(error);
  return el(
    "div",
    null,
    el("p", null, el("strong", null, [type, message].filter(Boolean).join(": "))),
    traceback ? el("pre", { tabindex: "0" }, traceback) : null,
    Object.keys(rest).length ? jsonBlock(rest) : null,
  );
}
