/** Events: what is happening right now? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, link, path, replace } from "../dom.js";
import { number } from "../format.js";
import { paused } from "../live.js";
import { filterRow } from "../parts/filter.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { pill } from "../status.js";

const ROWS_MAX = 500;
const RATE_MAX = 200;
/** @type {[string, string][]} */
const TYPES = [["", "all but heartbeats"], ["heartbeat", "heartbeats"], ["failed,dead_lettered,stalled", "what went wrong"], ["enqueued", "enqueued"], ["claimed,started", "claimed, started"],
  ["succeeded,failed,cancelled,dead_lettered", "ends"], ["assist_started,assist_ended,cancel_requested,moved,reprioritised,rescheduled,discarded,compensated,compensation_failed", "by operators"]];
/** @type {any} */
let view = null;

export const title = () => "Events";

/** @param {import("../router.js").Address} address */
export async function load({ query, signal }) {
  if (view) return null; // The stream brings what is new.
  const { pos } = await get("/v1/position", signal);
  const types = query.get("types");
  const found = await get(`/v1/events?limit=200&after=${Math.max(0, pos - 200)}${types ? `&types=${encodeURIComponent(types)}` : ""}`, signal);
  const job = query.get("job_id");
  return found.events.filter((/** @type {any} */ event) => (types || event.type !== "heartbeat") && (!job || String(event.job_id) === job)).reverse();
}

/** @param {import("../router.js").Address} address */
export function watch({ query }) {
  const given = { queue: query.get("queue"), kind: query.get("kind"), job_id: query.get("job_id"), types: query.get("types") };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}

/** @param {HTMLElement} root @param {any[]} data @param {import("../router.js").Address} address */
export function draw(root, data, { query }) {
  const list = table("Events, newest first", [
    { name: "When", cell: (/** @type {any} */ event) => time(event.received_at, { ago: true }) },
    { name: "Type", cell: (event) => (event.sampled ? `${event.type} × ${number(event.sampled)} in a second` : event.type) },
    { name: "Job", cell: (event) => link(path("jobs", event.job_id), `#${event.job_id}`) },
    { name: "Status", cell: (event) => pill(event.to_status) },
    { name: "Actor", cell: (event) => event.actor, cut: true },
    { name: "Attempt", cell: (event) => String(event.attempt), number: true },
    { name: "Reason", cell: (event) => event.reason ?? "", cut: true },
    { name: "Position", cell: (event) => String(event.pos), number: true },
  ], (event) => event.id);
  const said = el("p", { class: "muted" });
  const none = empty("No event matches. This page fills as soon as something happens.");
  root.append(head("Events"), filterRow("/events", query, [
    { name: "types", label: "Types", choices: TYPES }, { name: "queue", label: "Queue" }, { name: "kind", label: "Kind" }, { name: "job_id", label: "Job" },
  ]), said, none, list.node, command("holdfast events tail"));
  view = { list, said, none, rows: data, waiting: [], second: 0, count: 0 };
  show();
}

/** Keeps what a stream brings until the next drawing. @param {any} event */
export function onEvent(event) {
  if (!view) return;
  const second = Math.floor(performance.now() / 1000);
  view.count = second === view.second ? view.count + 1 : 1;
  view.second = second;
  const same = view.count > RATE_MAX ? view.waiting.find((/** @type {any} */ one) => one.type === event.type) : null;
  if (same) same.sampled = (same.sampled ?? 1) + 1;
  else view.waiting.unshift(event);
}

export function update() {
  if (!view || paused()) return;
  view.rows = [...view.waiting, ...view.rows].slice(0, ROWS_MAX);
  const isSampled = view.waiting.some((/** @type {any} */ one) => one.sampled);
  view.waiting = [];
  replace(view.said, isSampled ? `More than ${RATE_MAX} events a second: they are sampled, one line a type. The command below shows all.` : null);
  show();
}

function show() {
  view.list.update(view.rows);
  view.list.node.hidden = view.rows.length === 0;
  view.none.hidden = view.rows.length > 0;
}

export function leave() {
  view = null;
}
