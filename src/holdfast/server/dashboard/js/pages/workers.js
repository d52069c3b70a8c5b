/** Workers: who is alive, and what do they hold? */

import { get } from "../api.js";
import { ms, now, time } from "../clock.js";
import { el, link, path, setText, withQuery } from "../dom.js";
import { count, number } from "../format.js";
import { command, countLink, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { glyph } from "../status.js";

const FRESH_MS = 15_000;
const SILENT_MS = 45_000;
/** @type {any} */
let view = null;

export const title = () => "Workers";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  return (await get("/v1/workers", signal)).workers;
}

/** How long ago a worker was seen, as a state. @param {any} worker */
export function stateOf(worker) {
  const gap = now() - (ms(worker.seen_at) ?? 0);
  if (gap >= SILENT_MS) return el("span", { class: "stalled" }, glyph("stalled"), "silent");
  return el("span", { class: "running" }, glyph(gap < FRESH_MS ? "running" : "claimed"), gap < FRESH_MS ? "well" : "late");
}

/** Slots of all pools. @param {any} worker */
function slots(worker) {
  const rooms = Object.values(worker.details?.room ?? {});
  return rooms.length ? number(rooms.reduce((sum, n) => Number(sum) + Number(n), 0)) : "–";
}

/** @type {import("../parts/table.js").Column<any>[]} */
const COLUMNS = [
  { name: "Worker", cell: (worker) => link(path("workers", worker.name), worker.name), cut: true },
  { name: "State", cell: stateOf },
  { name: "Last seen", cell: (worker) => time(worker.seen_at, { ago: true }), number: true },
  { name: "Host", cell: (worker) => worker.details?.host ?? "", cut: true },
  { name: "Queues", cell: (worker) => (worker.details?.queues ?? []).join(", "), cut: true },
  { name: "Holds", cell: (worker) => countLink(withQuery("/jobs", { owner: worker.name }), worker.holding), number: true },
  { name: "Slots", cell: slots, number: true },
  { name: "Started", cell: (worker) => time(worker.started_at, { ago: true }), number: true },
  { name: "Version", cell: (worker) => worker.details?.version ?? "" },
  { name: "Incarnation", cell: (worker) => worker.incarnation, cut: true },
];

/** @param {HTMLElement} root @param {any} data */
export function draw(root, data) {
  const list = table("Workers", COLUMNS, (worker) => `${worker.name}#${worker.incarnation}`);
  const answer = el("p", { class: "answer" });
  const none = empty("No worker has signed in. Start one:", command("holdfast worker run yourapp:app"));
  root.append(head("Workers"), answer, none, list.node);
  view = { list, answer, none };
  update(data);
}

/** @param {any} data */
export function update(data) {
  const silent = data.filter((/** @type {any} */ one) => now() - (ms(one.seen_at) ?? 0) >= SILENT_MS).length;
  const holds = data.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.holding, 0);
  setText(view.answer, `${count(data.length, "worker")} ${data.length === 1 ? "holds" : "hold"} ${count(holds, "job")}. ${silent ? `${number(silent)} of them silent for 45 s or longer.` : "All were seen in the last 45 s."}`);
  view.answer.hidden = view.list.node.hidden = data.length === 0;
  view.none.hidden = data.length > 0;
  view.list.update(data);
}

export function leave() {
  view = null;
}
