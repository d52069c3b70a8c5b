/** Pausing and resuming a queue. */

import { post } from "../api.js";
import { el, path } from "../dom.js";
import { argument } from "../format.js";
import { can } from "../me.js";
import { dialog } from "./dialog.js";
import { command } from "./states.js";
import { toast } from "./toast.js";

/** @param {string} queue @param {() => Promise<void>} reload */
export function resumeButton(queue, reload) {
  if (!can("unpause")) return null;
  return el("button", { type: "button", "data-verb": "unpause", on: { click: () => run(queue, "unpause", {}, reload) } }, "Resume");
}

/** @param {string} queue @param {() => Promise<void>} reload */
export function pauseButton(queue, reload) {
  if (!can("pause")) return null;
  return el("button", { type: "button", "data-verb": "pause", on: { click: () => ask(queue, reload) } }, "Pause…");
}

/** @param {string} queue @param {() => Promise<void>} reload */
async function ask(queue, reload) {
  const reason = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "reason", maxlength: "500", autofocus: true }));
  const body = await dialog(`Pause queue ${queue}?`, (close) => [
    el("p", null, "No worker can claim a job of this queue until it is resumed. Jobs that are held go on."),
    el("label", { for: "reason" }, "Reason (shown to everybody)"),
    reason,
    command(`holdfast queue pause ${argument(queue)}`),
    el(
      "div",
      { class: "buttons" },
      el("button", { type: "button", on: { click: () => close(null) } }, "Keep it open"),
      el("button", { type: "button", class: "danger", "data-confirm": true, on: { click: () => close(reason.value.trim() ? { reason: reason.value.trim() } : {}) } }, `Pause ${queue}`),
    ),
  ]);
  if (body) await run(queue, "pause", body, reload);
}

/** @param {string} queue @param {string} verb @param {any} body @param {() => Promise<void>} reload */
async function run(queue, verb, body, reload) {
  try {
    await post(path("v1", "queues", queue, verb), body);
    toast(verb === "pause" ? `Queue ${queue} is paused.` : `Queue ${queue} is open again.`);
  } catch (/** @type {any} */ error) {
    toast(`${error.message} ${error.action ?? ""}`);
  }
  await reload();
}
