/** Verbs on many jobs. What is confirmed is a list of ids and revisions, never a filter. */

import { permission, reasonField } from "../actions.js";
import { post, Problem } from "../api.js";
import { el } from "../dom.js";
import { count, number } from "../format.js";
import { loadNow } from "../live.js";
import { guardLeaving } from "../router.js";
import { word } from "../status.js";
import { dialog, typedNumber } from "./dialog.js";
import { command } from "./states.js";

const BATCH = 200;
const FIRST = 5;

/** "3 failed, 2 cancelled". @param {any[]} jobs @param {(job: any) => string} by */
function breakdown(jobs, by) {
  const counts = new Map();
  for (const job of jobs) counts.set(by(job), (counts.get(by(job)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([name, n]) => `${number(n)} ${name}`).join(", ");
}

/**
 * Asks, and does something with many jobs.
 * @param {import("../actions.js").Verb} verb
 * @param {any[]} chosen
 */
export async function actOnMany(verb, chosen) {
  const jobs = chosen.filter(verb.fits);
  const given = await confirmMany(verb, jobs, chosen.length - jobs.length);
  if (given === null) return false;
  await run(verb, jobs, given);
  await loadNow();
  return true;
}

/** @param {import("../actions.js").Verb} verb @param {any[]} jobs @param {number} skipped @returns {Promise<any>} */
function confirmMany(verb, jobs, skipped) {
  return dialog(`${verb.label} ${count(jobs.length, "job")}?`, (close) => {
    const reason = reasonField(verb);
    const button = /** @type {HTMLButtonElement} */ (
      el("button", { type: "button", class: "danger", "data-confirm": true, on: { click: () => close(reason.body()) } }, `${verb.label} ${count(jobs.length, "job")}`)
    );
    button.disabled = jobs.length === 0;
    const first = jobs.slice(0, FIRST).map((job) => el("li", null, `#${job.id} ${job.kind} · ${word(job.status)} · queue ${job.queue}`));
    return [
      jobs.length ? el("p", null, verb.effect(jobs[0])) : el("p", null, `None of the chosen jobs can be used with ${verb.label.toLowerCase()}.`),
      el("p", null, `By status: ${breakdown(jobs, (job) => word(job.status)) || "none"}. By queue: ${breakdown(jobs, (job) => job.queue) || "none"}.`),
      el("ul", null, ...first, jobs.length > FIRST ? el("li", null, `and ${number(jobs.length - FIRST)} more`) : null),
      skipped ? el("p", null, `${count(skipped, "job")} ${verb.skips ?? "of another status"} will be skipped. A job that changes meanwhile is skipped too.`) : null,
      jobs.length <= BATCH ? command(verb.command(jobs.slice(0, 20).map((job) => job.id).join(" ") + (jobs.length > 20 ? " …" : ""))) : null,
      reason.label,
      reason.field,
      ...typedNumber(jobs.length, button),
      el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: () => close(null) } }, "Keep"), button),
    ];
  });
}

/** Sends the batches one after another, each with its own key. @param {import("../actions.js").Verb} verb @param {any[]} jobs @param {any} given */
async function run(verb, jobs, given) {
  /** @type {{job_id: number, outcome: string}[]} */
  const outcomes = [];
  let stopped = false;
  let problem = /** @type {Problem | null} */ (null);
  const said = el("p", { role: "status" }, "");
  const progress = el("progress", { max: jobs.length, value: 0, "aria-label": "Progress" });
  const stop = el("button", { type: "button", autofocus: true }, "Stop");
  const buttons = el("div", { class: "buttons" }, stop);
  const shown = dialog(`${verb.label} ${count(jobs.length, "job")}`, (close) => {
    stop.addEventListener("click", () => (stopped ? close(true) : (stopped = true)));
    return [progress, said, buttons];
  });
  guardLeaving(() => (stopped ? null : "Leaving this page stops the work. Leave it?"));
  for (let n = 0; n < jobs.length && !stopped && !problem; n += BATCH) {
    const part = jobs.slice(n, n + BATCH);
    try {
      const body = { verb: permission(verb), ...verb.body, ...given, jobs: part.map((job) => ({ id: job.id, rev: job.rev })) };
      const found = await post("/v1/batches", body);
      for (const answer of found.answers) outcomes.push({ job_id: answer.job_id, outcome: answer.problem?.code ?? "done" });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = error;
    }
    progress.setAttribute("value", String(outcomes.length));
    said.textContent = `${number(outcomes.length)} of ${number(jobs.length)}`;
  }
  guardLeaving(null);
  stopped = true;
  stop.textContent = "Close";
  const done = outcomes.filter((one) => one.outcome === "done").length;
  const moved = outcomes.length - done;
  const left = jobs.length - outcomes.length;
  said.textContent = [
    `${number(done)} done`,
    moved ? `${number(moved)} had moved on` : "",
    left ? `${number(left)} not sent` : "",
    problem ? `${problem.message} ${problem.action}` : "",
  ].filter(Boolean).join(", ");
  const lines = outcomes.map((one) => `${JSON.stringify(one)}\n`);
  const file = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  buttons.prepend(el("a", { href: file, download: `holdfast-${verb.name}.ndjson` }, "Download the list"));
  await shown;
  URL.revokeObjectURL(file);
}
