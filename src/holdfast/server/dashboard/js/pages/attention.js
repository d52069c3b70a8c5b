/** Attention: what waits for a person? */

import { verbButton, verbsFor } from "../actions.js";
import { get, getIfThere } from "../api.js";
import { time } from "../clock.js";
import { el, keyed, link, path, replace, setText } from "../dom.js";
import { count } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { command, empty, head } from "../parts/states.js";
import { pill } from "../status.js";

const HELPS = { assist_requested: ["assist", "cancel"], escalation: ["requeue", "cancel"], assisted: ["unassist", "cancel"], compensation_failed: ["discard"], sink_dead: [] };
const WORDS = { assist_requested: "The holder asks for assistance", escalation: "The job stalled, and its policy wants a person", assisted: "An operator assists the job", compensation_failed: "Undoing the job's effects failed", sink_dead: "Deliveries to a sink were given up" };
const JOBS_MAX = 50;
/** @type {any} */
let view = null;

export const title = () => "Attention";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const found = (await get("/v1/attention", signal)).attention;
  const shown = found.filter((/** @type {any} */ item) => item.job_id !== null).slice(0, JOBS_MAX);
  const jobs = new Map(await Promise.all(shown.map(async (/** @type {any} */ item) => [item.job_id, (await getIfThere(path("v1", "jobs", item.job_id), signal))?.job])));
  return found.map((/** @type {any} */ item) => ({ ...item, job: jobs.get(item.job_id) }));
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { reload }) {
  const cards = el("div", null);
  const answer = el("p", { class: "answer" });
  const none = empty("Nothing waits for a person.", command("holdfast doctor"));
  root.append(head("Attention"), answer, none, cards);
  view = { cards, answer, none, reload };
  update(data);
}

/** @param {any} item */
function key(item) {
  return `${item.reason}-${item.job_id ?? item.sink}`;
}

/** @param {any} item */
function card(item) {
  const body = el("div", null);
  const buttons = el("div", { class: "chips" });
  const node = el("section", { class: "panel" }, body, buttons);
  fill(node, item);
  return node;
}

/** @param {HTMLElement} node @param {any} item */
function fill(node, item) {
  const reason = /** @type {keyof typeof HELPS} */ (item.reason);
  const what = item.job_id === null ? link("/sinks", `Sink ${item.sink}`) : link(path("jobs", item.job_id), `${item.kind} #${item.job_id}`);
  const by = [item.worker && `held by ${item.worker}`, item.by && `by ${item.by}`, item.queue && `queue ${item.queue}`].filter(Boolean).join(" · ");
  replace(node.children[0], el("h2", null, what, " ", item.status ? pill(item.status) : null), el("p", null, `${WORDS[reason] ?? item.reason}, since `, time(item.since), "."), item.detail ? el("p", null, item.detail) : null, el("p", { class: "muted" }, by));
  const wanted = item.job ? verbsFor(item.job).filter((verb) => HELPS[reason]?.includes(verb.name)) : [];
  const names = wanted.map((verb) => verb.name).join();
  const place = /** @type {HTMLElement} */ (node.children[1]);
  /** @type {any} */ (place).job = item.job;
  if (place.dataset.verbs === names) return;
  place.dataset.verbs = names;
  const revive = item.sink && sendButton({ verb: "revive_sink", label: "Revive", path: path("v1", "sinks", item.sink, "revive"), done: `Sink ${item.sink} gets events again.`, reload: view.reload });
  place.replaceChildren(...wanted.map((verb) => verbButton(verb, () => /** @type {any} */ (place).job)), ...(revive ? [revive] : []));
}

/** @param {any} data */
export function update(data) {
  setText(view.answer, data.length ? `${count(data.length, "thing waits", "things wait")} for a person. The oldest comes first.` : "");
  view.none.hidden = data.length > 0;
  keyed(view.cards, data, key, card, fill);
}

export function leave() {
  view = null;
}
