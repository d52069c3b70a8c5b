/** All queues: does work pile up, and who stopped it? */

import { get } from "../api.js";
import { everySecond } from "../clock.js";
import { el, setText, withQuery } from "../dom.js";
import { count, decimal, number, rateWindow } from "../format.js";
import { pauseButton, resumeButton } from "../parts/pause.js";
import { QUEUE_COLUMNS } from "../parts/queue.js";
import { sparkline } from "../parts/sparkline.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";

const LINES_EVERY_MS = 60_000;
/** Queues with a line of their own: the first that are shown. */
const LINES_MAX = 30;
/** @type {any} */
let view = null;

export const title = () => "Queues";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const [{ queues }, settings] = await Promise.all([get("/v1/queues", signal), get("/v1/queue-settings", signal)]);
  const of = new Map(settings.queues.map((/** @type {any} */ one) => [one.queue, one]));
  return queues.map((/** @type {any} */ queue) => ({ ...queue, settings: of.get(queue.name) }));
}

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
