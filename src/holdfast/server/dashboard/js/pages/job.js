/** One job: what happened to it, and what happens next? */

import { verbBar } from "../actions.js";
import { get, getIfThere } from "../api.js";
import { time } from "../clock.js";
import { el, link, path, replace, setText, withQuery } from "../dom.js";
import { count, duration, number } from "../format.js";
import { errorBlock, jsonBlock } from "../parts/json.js";
import { command, facts, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { timeline } from "../parts/timeline.js";
import { pill } from "../status.js";

/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Job ${name}`;

/** @param {import("../router.js").Address} address */
export async function load({ name, signal }) {
  const base = path("v1", "jobs", name);
  const [found, explained, life] = await Promise.all([get(base, signal), get(`${base}/explain`, signal), get(`${base}/timeline?width=1200`, signal)]);
  return { job: found.job, explained, life };
}

/** @param {import("../router.js").Address} address */
export function watch({ name }) {
  return { job_id: name, beats: true };
}

/** Lines below the title. @param {any} job */
function summary(job) {
  const parts = [
    ["queue ", link(path("queues", job.queue), job.queue)],
    [`priority ${job.priority}`],
    [`attempt ${job.attempt}${job.attempts_max ? ` of ${job.attempts_max}` : ""}`],
    job.owner ? ["held by ", link(path("workers", job.owner), job.owner)] : null,
    job.dedupe_key ? [`key ${job.dedupe_key}`] : null,
    job.replay_of ? ["replay of ", link(path("jobs", job.replay_of), `#${job.replay_of}`)] : null,
    job.note ? [`noted: ${job.note}`] : null,
    job.tier ? [`tier ${job.tier}`] : null,
    job.partition ? [`partition ${job.partition}`] : null,
    ...Object.entries(job.limits).map(([name, units]) => ["limit ", link(path("limits", name), name), ` (${count(Number(units), "unit")})`]),
    job.requires.length ? [`requires ${job.requires.join(", ")}`] : null,
    job.for_worker ? ["for worker ", link(path("workers", job.for_worker), job.for_worker)] : null,
    job.group ? ["group ", link(path("groups", job.group), job.group)] : null,
  ];
  return parts.filter((one) => one !== null).flatMap((one, n) => (n ? [" · ", ...one] : one));
}

/**
 * A part of the page that is filled when it is first opened.
 * @param {string} name
 * @param {() => Promise<import("../dom.js").Child> | import("../dom.js").Child} fill
 * @param {boolean} [isOpen]
 */
function part(name, fill, isOpen = false) {
  const label = el("span", null, name);
  const body = el("div", { class: "body" });
  const node = /** @type {HTMLDetailsElement} */ (el("details", { class: "part", open: isOpen, "data-part": name.split(" ")[0].toLowerCase() }, el("summary", null, label), body));
  const draw = async () => {
    try {
      replace(body, await fill());
    } catch (/** @type {any} */ error) {
      replace(body, el("p", { role: "alert" }, `${error.message} ${error.action ?? ""}`));
    }
  };
  node.addEventListener("toggle", () => node.open && draw());
  if (isOpen) draw();
  return { node, refresh: () => (node.open ? draw() : null), name: (/** @type {string} */ text) => setText(label, text) };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name, signal }) {
  const base = path("v1", "jobs", name);
  const status = el("span", null);
  const buttons = verbBar();
  const under = el("p", { class: "muted" });
  const sentence = el("p", { class: "answer" });
  const commands = el("div", null);
  const next = table("What happens next", [
    { name: "What", cell: (/** @type {any} */ step) => step.what },
    { name: "When", cell: (step) => (step.at ? time(step.at, { until: true }) : "when it is done") },
    { name: "By", cell: (step) => step.by },
  ], (step) => step.what);
  const life = timeline(data.life, (from, to) => get(withQuery(`${base}/timeline`, { from, to, width: 1200 }), signal));
  const nextPart = el("section", null, el("h2", null, "What is next"), next.node);
  const job = () => view.data.job;
  const parts = [
    part("Error", () => (job().last_error === null ? "No attempt has failed." : errorBlock(job().last_error)), data.job.last_error !== null),
    part("Args", () => jsonBlock(job().args), true),
    part("Result", () => (job().result === null ? "There is no result." : jsonBlock(job().result)), data.job.result !== null),
    part("Checkpoint", () => (job().checkpoint === null ? "No checkpoint was kept." : jsonBlock(job().checkpoint))),
    part("Undo steps", async () => undoSteps((await get(`${base}/undo-steps`, signal)).steps)),
    part("Dependencies", () => dependencies(job(), base, signal)),
    part("Events", () => events(base, signal)),
    part("Policy of this attempt", () => policyFacts(job().policy ?? view.data.explained.policy)),
    part("Times and names", () => times(job())),
    part("Proof", async () => (await import("../proof/panel.js")).panel(Number(name), signal, job)),
  ];
  root.append(
    head([status, ` ${data.job.kind} #${data.job.id}`]),
    buttons.node,
    under,
    sentence,
    life.node,
    nextPart,
    ...parts.map((one) => one.node),
    el("h2", null, "Commands"),
    commands,
  );
  view = { data, status, buttons, under, sentence, commands, next, nextPart, life, parts };
  show(data);
}

/** @param {any} data */
function show(data) {
  const { job, explained } = data;
  view.data = data;
  replace(view.status, pill(job.status, job.phase));
  replace(view.under, ...summary(job));
  setText(view.sentence, explained.text);
  view.buttons.update(job);
  view.next.update(explained.next);
  view.nextPart.hidden = explained.next.length === 0;
  const hint = (/** @type {string} */ name, /** @type {any} */ value) => (value === null ? `${name}: none` : name);
  view.parts[0].name(hint("Error", job.last_error));
  view.parts[2].name(hint("Result", job.result));
  view.parts[3].name(hint("Checkpoint", job.checkpoint));
  view.parts[4].name(job.undo_owed ? `Undo steps: ${number(job.undo_owed)}` : "Undo steps");
  view.parts[5].name(job.depends_on.length ? `Dependencies: ${number(job.depends_on.length)}` : "Dependencies");
  const offered = explained.commands.map((/** @type {any} */ one) => el("div", null, command(one.command), el("p", { class: "muted" }, one.does)));
  replace(view.commands, command(`holdfast explain ${job.id}`), command(`holdfast job events ${job.id}`), ...offered);
}

/** @param {any} data */
export function update(data) {
  const isChanged = data.job.rev !== view.data.job.rev;
  show(data);
  view.life.update(data.life);
  if (isChanged) for (const one of view.parts) one.refresh();
}

export function leave() {
  view?.life.leave();
  view = null;
}

/** @param {any[]} steps */
function undoSteps(steps) {
  if (!steps.length) return "No undo step is registered.";
  return el("ol", null, ...steps.map((step) => el("li", null, step.kind, jsonBlock(step.args))));
}

/** @param {any} job @param {string} base @param {AbortSignal} signal */
async function dependencies(job, base, signal) {
  const found = await getIfThere(`${base}/graph?depth=3`, signal);
  if (!found || found.nodes.length < 2) return job.depends_on.length ? `It depends on ${job.depends_on.join(", ")}.` : "It depends on no job, and no job waits for it.";
  const { graph } = await import("../parts/graph.js");
  return graph(found, job.id);
}

/** What an enqueue with the job's dedupe key has done. @type {Record<string, string>} */
const CALLS = { replaced: "new arguments by a call with its key", postponed: "new arguments, and the delay anew, by a call with its key" };

/** @param {string} base @param {AbortSignal} signal */
async function events(base, signal) {
  const found = await get(`${base}/events?limit=1000`, signal);
  const list = table("Events", [
    { name: "Rev", cell: (/** @type {any} */ event) => String(event.rev), number: true },
    { name: "When", cell: (event) => time(event.received_at, { ago: true }) },
    { name: "Type", cell: (event) => event.type },
    { name: "Status", cell: (event) => pill(event.to_status) },
    { name: "Actor", cell: (event) => event.actor, cut: true },
    { name: "Attempt", cell: (event) => String(event.attempt), number: true },
    { name: "Reason", cell: (event) => event.reason ?? CALLS[event.type] ?? "", cut: true },
    { name: "Signed", cell: (event) => (event.key_id ? `key ${event.key_id}` : "") },
  ], (event) => event.id);
  list.update(found.events);
  return [list.node, found.next_after ? el("p", { class: "muted" }, `These are the first ${number(found.events.length)} events.`) : count(found.events.length, "event")];
}

/** @param {any} policy */
function policyFacts(policy) {
  if (!policy) return "The policy is resolved when the job is claimed.";
  return facts(...Object.entries(policy).map(([key, value]) => /** @type {[string, any]} */ ([key.replace(/_ms$/, "").replaceAll("_", " "), key.endsWith("_ms") && value !== null ? duration(Number(value)) : String(value ?? "none")])));
}

/** @param {any} job */
function times(job) {
  const named = ["created_at", "available_at", "claimed_at", "started_at", "last_heartbeat_at", "claim_expires_at", "finished_at", "cancel_requested_at"];
  return facts(
    ...named.map((key) => /** @type {[string, any]} */ ([key.replace(/_at$/, "").replaceAll("_", " "), job[key] ? time(job[key]) : null])),
    ["correlation id", job.correlation_id],
    ["trace id", job.trace_id],
    ["releases", job.releases ? number(job.releases) : null],
    ["stage", job.stage],
    ["progress", job.progress === null ? null : number(job.progress)],
    ["last holder", job.last_owner],
    ["revision", number(job.rev)],
  );
}
