/** Attention: what waits for a person? */

import { verbBar } from "../actions.js";
import { get, getIfThere } from "../api.js";
import { everySecond, time } from "../clock.js";
import { el, keyed, link, path, replace, setText } from "../dom.js";
import { count } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { command, empty, head } from "../parts/states.js";
import { isHeld } from "../parts/steady.js";
import { pill } from "../status.js";

/** The buttons of a held or stalled job, each in its place in every state. */
const HELD = ["assist", "unassist", "requeue", "cancel"];
/** @type {Record<string, string>} */
const WORDS = { assist_requested: "The holder asks for assistance", escalation: "The job stalled, and its policy wants a person", assisted: "An operator assists the job", compensation_failed: "Undoing the job's effects failed", sink_dead: "Deliveries to a sink were given up" };
/** @type {Record<string, string>} */
const BY = { assisted: ": ", compensation_failed: ", noted by " };
const JOBS_MAX = 50;
/** A card stays for so long after its job or sink waits no longer, so that no other card takes its place at once. */
const STAYS_MS = 10_000;
/** @type {any} */
let view = null;

export const title = () => "Attention";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const found = (await get("/v1/attention", signal)).attention;
  // Cards of jobs that wait no longer show what became of them.
  const gone = (view?.cards ?? []).filter((/** @type {any} */ card) => card.id !== null).map((/** @type {any} */ card) => card.id);
  const ids = [...new Set([...found.map((/** @type {any} */ item) => item.job_id).filter((/** @type {any} */ id) => id !== null), ...gone])].slice(0, JOBS_MAX);
  const jobs = new Map(await Promise.all(ids.map(async (id) => /** @type {[number, any]} */ ([id, (await getIfThere(path("v1", "jobs", id), signal))?.job ?? null]))));
  return { items: found, jobs };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { reload }) {
  const place = el("div", null);
  const answer = el("p", { class: "answer" });
  const none = empty("Nothing waits for a person.", command("holdfast doctor"));
  root.append(head("Attention"), answer, none, place);
  view = { place, answer, none, reload, cards: [], stop: everySecond(removeOld) };
  update(data);
}

/** One card for each job or sink, with all reasons for which it waits. @param {any[]} items */
function grouped(items) {
  /** @type {Map<string, {key: string, id: number | null, first: any, items: any[], goneAt: number | null}>} */
  const found = new Map();
  for (const item of items) {
    const key = item.job_id === null ? `sink-${item.sink}` : `job-${item.job_id}`;
    const card = found.get(key);
    if (card) card.items.push(item);
    else found.set(key, { key, id: item.job_id, first: item, items: [item], goneAt: null });
  }
  return found;
}

/** @param {any} card */
function make(card) {
  const { first } = card;
  const names = first.reason === "compensation_failed" ? ["discard"] : HELD;
  const bar = card.id === null ? null : verbBar(names);
  const revive = card.id === null && sendButton({ verb: "revive_sink", label: "Revive", path: path("v1", "sinks", first.sink, "revive"), done: `Sink ${first.sink} gets events again.`, reload: view.reload });
  const node = el("section", { class: "panel card" }, el("h2", null), bar?.node ?? el("div", { class: "chips" }, revive || null), el("div", { class: "said" }));
  /** @type {any} */ (node).bar = bar;
  fill(node, card);
  return node;
}

/** @param {any} node @param {any} card */
function fill(node, card) {
  const { first, items } = card;
  const job = view.jobs.get(card.id);
  const what = card.id === null ? link("/sinks", `Sink ${first.sink}`) : link(path("jobs", card.id), `${first.kind} #${card.id}`);
  replace(node.children[0], what, " ", job ? pill(job.status, job.phase) : null);
  node.bar?.update(job ?? null);
  node.classList.toggle("over", card.goneAt !== null);
  if (card.goneAt !== null) {
    replace(node.children[2], el("p", null, "It waits for a person no longer."), el("p", { class: "muted" }, where(first)));
    return;
  }
  const reasons = items.map((/** @type {any} */ item) => el("p", null, `${WORDS[item.reason] ?? item.reason}${item.by ? `${BY[item.reason] ?? ": "}${item.by}` : ""}, `, time(item.since, { ago: true }), item.detail ? `: ${item.detail}` : ""));
  replace(node.children[2], ...reasons, el("p", { class: "muted" }, where(first)));
}

/** @param {any} item */
function where(item) {
  return [item.worker && `held by ${item.worker}`, item.queue && `queue ${item.queue}`].filter(Boolean).join(" · ");
}

/** New cards come last, and a card that is over stays for a while: nothing above a button comes or goes. @param {any} data */
export function update({ items, jobs }) {
  const found = grouped(items);
  setText(view.answer, found.size ? `${count(found.size, "thing waits", "things wait")} for a person. The oldest comes first; what is new is added at the end.` : "");
  view.none.hidden = found.size > 0;
  view.jobs = jobs;
  const kept = view.cards.map((/** @type {any} */ card) => found.get(card.key) ?? { ...card, goneAt: card.goneAt ?? performance.now() });
  const known = new Set(kept.map((/** @type {any} */ card) => card.key));
  view.cards = [...kept, ...[...found.values()].filter((card) => !known.has(card.key))];
  keyed(view.place, view.cards, (card) => card.key, make, fill);
}

function removeOld() {
  if (!view || isHeld(view.place)) return;
  const left = view.cards.filter((/** @type {any} */ card) => card.goneAt === null || performance.now() - card.goneAt < STAYS_MS);
  if (left.length === view.cards.length) return;
  view.cards = left;
  keyed(view.place, left, (/** @type {any} */ card) => card.key, make, fill);
}

export function leave() {
  view?.stop();
  view = null;
}
