/** How lists show queues. */

import { time } from "../clock.js";
import { el, link, path, withQuery } from "../dom.js";
import { number } from "../format.js";
import { glyph } from "../status.js";
import { countLink } from "./states.js";

/** Weights that a row names. */
const WEIGHTS_MAX = 3;

/** A number that leads to the jobs that it counts. @param {string} queue @param {string} status @param {number | undefined} n */
function counted(queue, status, n) {
  return countLink(withQuery("/jobs", { queue, status }), n);
}

/** Whether the queue is open, or who has paused it. @param {any} queue */
export function stateOf(queue) {
  if (!queue.paused_at) return "open";
  const by = queue.paused_by ? ` by ${queue.paused_by}` : "";
  return el("span", null, glyph("paused"), `paused${by}, `, time(queue.paused_at), queue.pause_reason ? `: ${queue.pause_reason}` : "");
}

/** How it serves its partitions, if that is set. @param {any} settings @param {number} most How many weights to name. */
export function settingsText(settings, most) {
  if (!settings) return "";
  const weights = Object.entries(settings.weights);
  const named = weights.slice(0, most).map(([partition, weight]) => `${partition} ${number(weight)}`).join(", ");
  const more = weights.length > most ? ` and ${number(weights.length - most)} more` : "";
  return weights.length ? `weights ${named}${more}` : "";
}

/** @type {import("./table.js").Column<any>[]} */
export const QUEUE_COLUMNS = [
  { name: "Queue", cell: (queue) => link(path("queues", queue.name), queue.name), cut: true },
  { name: "State", cell: (queue) => [stateOf(queue), queue.settings && el("div", { class: "muted" }, settingsText(queue.settings, WEIGHTS_MAX))], cut: true },
  { name: "Waiting", cell: (queue) => counted(queue.name, "queued", queue.counts.queued), number: true },
  { name: "Oldest", cell: (queue) => (queue.ready_since ? time(queue.ready_since) : ""), number: true },
  { name: "Running", cell: (queue) => counted(queue.name, "running", queue.counts.running), number: true },
  { name: "Stalled", cell: (queue) => counted(queue.name, "stalled", queue.counts.stalled), number: true },
  { name: "Failed", cell: (queue) => counted(queue.name, "failed", queue.counts.failed), number: true },
  { name: "Dead letters", cell: (queue) => countLink(withQuery("/dead-letters", { queue: queue.name }), queue.dead_letters), number: true },
  { name: "Done", cell: (queue) => counted(queue.name, "succeeded", queue.counts.succeeded), number: true },
];
