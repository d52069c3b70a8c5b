/** All queues: does work pile up, and who stopped it? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, link, path, setText, withQuery } from "../dom.js";
import { count, number } from "../format.js";
import { resumeButton } from "../parts/pause.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { glyph } from "../status.js";

/** @type {any} */
let view = null;

export const title = () => "Queues";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  return (await get("/v1/queues", signal)).queues;
}

/** A number that leads to the jobs that it counts. @param {string} queue @param {string} status @param {number | undefined} n */
export function counted(queue, status, n) {
  return n ? link(withQuery("/jobs", { queue, status }), number(n)) : el("span", { class: "muted" }, "0");
}

/** Whether the queue is open, or who has paused it. @param {any} queue */
export function stateOf(queue) {
  if (!queue.paused_at) return "open";
  const by = queue.paused_by ? ` by ${queue.paused_by}` : "";
  return el("span", null, glyph("paused"), `paused${by}, `, time(queue.paused_at), queue.pause_reason ? `: ${queue.pause_reason}` : "");
}

/** @type {import("../parts/table.js").Column<any>[]} */
export const QUEUE_COLUMNS = [
  { name: "Queue", cell: (queue) => link(path("queues", queue.name), queue.name), cut: true },
  { name: "State", cell: stateOf, cut: true },
  { name: "Waiting", cell: (queue) => counted(queue.name, "queued", queue.counts.queued), number: true },
  { name: "Oldest", cell: (queue) => (queue.ready_since ? time(queue.ready_since) : ""), number: true },
  { name: "Running", cell: (queue) => counted(queue.name, "running", queue.counts.running), number: true },
  { name: "Stalled", cell: (queue) => counted(queue.name, "stalled", queue.counts.stalled), number: true },
  { name: "Failed", cell: (queue) => counted(queue.name, "failed", queue.counts.failed), number: true },
  { name: "Dead letters", cell: (queue) => counted(queue.name, "dead_lettered", queue.counts.dead_lettered), number: true },
  { name: "Done", cell: (queue) => counted(queue.name, "succeeded", queue.counts.succeeded), number: true },
];

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, address) {
  const list = table("Queues", [...QUEUE_COLUMNS, { name: "", cell: (queue) => (queue.paused_at ? resumeButton(queue.name, address.reload) : "") }], (queue) => queue.name);
  const answer = el("p", { class: "answer" });
  const none = empty("There is no queue yet. A queue comes to be with its first job:", command("holdfast job enqueue greet --queue mail"));
  root.append(head("Queues"), answer, none, list.node);
  view = { list, answer, none };
  update(data);
}

/** @param {any} data */
export function update(data) {
  const paused = data.filter((/** @type {any} */ queue) => queue.paused_at).length;
  const waiting = data.reduce((/** @type {number} */ sum, /** @type {any} */ queue) => sum + (queue.counts.queued ?? 0), 0);
  setText(view.answer, `${count(waiting, "job")} ${waiting === 1 ? "waits" : "wait"} in ${count(data.length, "queue")}. ${paused ? `${count(paused, "queue")} paused.` : "None is paused."}`);
  view.answer.hidden = view.list.node.hidden = data.length === 0;
  view.none.hidden = data.length > 0;
  view.list.update(data);
}

export function leave() {
  view = null;
}
