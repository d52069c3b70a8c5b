/** The statuses of jobs: their order, words and glyphs. */

import { el, svg } from "./dom.js";

export const STATUSES = ["queued", "claimed", "running", "stalled", "succeeded", "failed", "cancelled", "dead_lettered"];
export const OVER = new Set(["succeeded", "failed", "cancelled", "dead_lettered"]);
export const HELD = new Set(["claimed", "running", "stalled"]);

/** Paths on a grid of 12: [class, path]. @type {Record<string, [string, string][]>} */
const GLYPHS = {
  queued: [["line", "M6 1.5a4.5 4.5 0 1 0 .01 0"]],
  claimed: [["line", "M6 1.5a4.5 4.5 0 1 0 .01 0"], ["fill", "M6 1.5a4.5 4.5 0 0 0 0 9z"]],
  running: [["fill", "M6 .8a5.2 5.2 0 1 0 .01 0"]],
  stalled: [["fill", "M1 1v10h10z"]],
  succeeded: [["line", "M1.5 6.5l3 3.2 6-7.2"]],
  failed: [["line", "M2 2l8 8M10 2l-8 8"]],
  cancelled: [["line", "M6 1.5a4.5 4.5 0 1 0 .01 0M2.9 9.1l6.2-6.2"]],
  dead_lettered: [["fill", "M3.5 1h5L11 6l-2.500 5h-5L1 6z"]],
  well: [["line", "M1.5 6.5l3 3.2 6-7.2"]],
  note: [["line", "M6 1.5a4.5 4.5 0 1 0 .01 0M6 5.5v3M6 3.600v.01"]],
  warning: [["line", "M6 1.200l5.200 9.600H.8zM6 4.700v2.600M6 9.100v.01"]],
  live: [["fill", "M6 2a4 4 0 1 0 .01 0"]],
  paused: [["fill", "M2.500 2h2.500v8h-2.500zM7 2h2.500v8H7z"]],
  polling: [["line", "M6 2a4 4 0 1 0 .01 0"]],
  theme: [["line", "M6 1.500a4.500 4.500 0 1 0 .01 0"], ["fill", "M6 1.500a4.500 4.500 0 0 1 0 9z"]],
};

/** The word of a status, as people read it. @param {string} status */
export function word(status) {
  return status.replaceAll("_", " ");
}

/** @param {string} name */
export function glyph(name) {
  const parts = (GLYPHS[name] ?? []).map(([kind, d]) => svg("path", { class: kind, d }));
  return svg("svg", { class: `glyph ${name}`, viewBox: "0 0 12 12", "aria-hidden": "true" }, ...parts);
}

/**
 * A glyph and a word.
 * @param {string} status
 * @param {string | null} [phase] The phase of a running job, if it is another than the usual.
 */
export function pill(status, phase) {
  const more = phase && phase !== "executing" && phase !== status ? ` · ${word(phase)}` : "";
  return el("span", { class: `pill ${status}` }, glyph(status), word(status) + more);
}

/**
 * The first line of an error, as the ledger keeps errors: a text, or an object with type and message.
 * @param {any} error
 */
export function errorLine(error) {
  if (error === null || error === undefined) return "";
  if (typeof error === "string") return firstLine(error);
  const text = [error.type ?? error.error_class, error.message ?? error.detail].filter(Boolean).join(": ");
  return firstLine(text || JSON.stringify(error));
}

/** @param {string} text */
function firstLine(text) {
  const line = text.trim().split("\n", 1)[0];
  return line.length > 160 ? `${line.slice(0, 160)}…` : line;
}
