/** All queues: does work pile up, and who stopped it? */

import { get } from "../api.js";
import { everySecond, time } from "../clock.js";
import { el, link, path, setText, withQuery } from "../dom.js";
import { count, decimal, number, rateWindow } from "../format.js";
import { pauseButton, resumeButton } from "../parts/pause.js";
import { sparkline } from "../parts/sparkline.js";
import { command, countLink, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { glyph } from "../status.js";

const LINES_EVERY_MS = 60_000;
/** Queues with a line of their own: the first that are shown. */
const LINES_MAX = 30;
/** Weights that a row names. */
const WEIGHTS_MAX = 3;
/** @type {any} */
let view = null;

export const title = () => "Queues";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const [{ queues }, settings] = await Promise.all([get("/v1/queues", signal), get("/v1/queue-settings", signal)]);
  const of = new Map(settings.queues.map((/** @type {any} */ one) => [one.queue, one]));
  return queues.map((/** @type {any} */ queue) => ({ ...queue, settings: of.get(queue.name) }));
}

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

/** @type {import("../parts/table.js").Column<any>[]} */
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

/** Reads how many jobs waited in each queue in the last hour, again each minute. @param {AbortSignal} signal */
function lastHours(signal) {
  /** @type {Map<string, (number | null)[]>} */
  const known = new Map();
  let readAt = -Infinity;
  async function read() {
    readAt = performance.now();
    const names = view.rows.slice(0, LINES_MAX).map((/** @type {any} */ queue) => queue.name);
    await Promise.all(names.map(async (/** @type {string} */ queue) => {
      const depth = await get(withQuery("/v1/history", { metric: "depth", queue }), signal).catch(() => null);
      if (depth && !depth.is_other) known.set(queue, depth.points.map((/** @type {any} */ point) => point.values?.depth ?? null));
    }));
    if (view && !signal.aborted) view.list.update(view.rows);
  }
  return { known, read, stop: everySecond(() => performance.now() - readAt > LINES_EVERY_MS && read()) };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { reload, signal }) {
  const lines = lastHours(signal);
  const depth = (/** @type {any} */ queue) => {
    const values = lines.known.get(queue.name);
    return values ? sparkline(values, `Waiting jobs of the last hour, at most ${number(Math.max(0, ...values.map((value) => value ?? 0)))}`) : "";
  };
  const list = table("Queues", [
    ...QUEUE_COLUMNS,
    { name: "In/min", cell: (queue) => decimal(queue.rates?.enqueued), number: true },
    { name: "Done/min", cell: (queue) => decimal(queue.rates?.succeeded), number: true },
    { name: "1 h", cell: depth },
    { name: "", cell: (queue) => (queue.paused_at ? resumeButton : pauseButton)(queue.name, reload) },
  ], (queue) => queue.name);
  const answer = el("p", { class: "answer" });
  const none = empty("There is no queue yet. A queue comes to be with its first job:", command("holdfast job enqueue greet --queue mail"));
  root.append(head("Queues"), answer, none, list.node);
  view = { list, answer, none, lines, rows: data };
  update(data);
  lines.read();
}

/** @param {any} data */
export function update(data) {
  const paused = data.filter((/** @type {any} */ queue) => queue.paused_at).length;
  const rated = data.find((/** @type {any} */ queue) => queue.rates)?.rates;
  const waiting = data.reduce((/** @type {number} */ sum, /** @type {any} */ queue) => sum + (queue.counts.queued ?? 0), 0);
  setText(view.answer, `${count(waiting, "job")} ${waiting === 1 ? "waits" : "wait"} in ${count(data.length, "queue")}. ${paused ? `${count(paused, "queue")} paused.` : "None is paused."}${rated ? ` Rates are of the ${rateWindow(rated)}.` : ""}`);
  view.answer.hidden = view.list.node.hidden = data.length === 0;
  view.none.hidden = data.length > 0;
  view.rows = data;
  view.list.update(data);
}

export function leave() {
  view?.lines.stop();
  view = null;
}
