/** What people do with jobs. Each verb has a level: the more it can break, the more it asks. */

import { post, Problem } from "./api.js";
import { el, path, whileDisabled } from "./dom.js";
import { loadNow } from "./live.js";
import { can } from "./me.js";
import { dialog } from "./parts/dialog.js";
import { command } from "./parts/states.js";
import { toast } from "./parts/toast.js";
import { HELD, OVER, pill, word } from "./status.js";

/**
 * @typedef {object} Verb
 * @property {string} name As the routes and `can` name it.
 * @property {string} label The button's text.
 * @property {string} done What the message says afterwards.
 * @property {1 | 2 | 3} level
 * @property {(job: any) => boolean} fits Whether it can be used on a job as it is.
 * @property {(job: any) => string} effect What happens, in one sentence.
 * @property {(ids: string) => string} command
 * @property {string} [skips] What is said of jobs that it does not fit, if it is not their status.
 * @property {boolean} [many] Whether it can be used on many jobs at once.
 * @property {Record<string, any>} [body]
 * @property {string} [route] If it is another than the name.
 * @property {boolean} [asksCode] Whether it asks for a reason code instead of a reason.
 */

const isOver = (/** @type {any} */ job) => OVER.has(job.status);
const isLive = (/** @type {any} */ job) => !OVER.has(job.status);
const holder = (/** @type {any} */ job) => job.owner ?? "its holder";
const grace = (/** @type {any} */ job) => Math.round((job.policy?.cancel_grace_ms ?? 30_000) / 1000);

const REASON_CODES = [
  "policy_violation", "parse_error", "validation_failed", "dependency_unavailable", "timeout", "exhausted_retries", "infrastructure_failure",
];

/** @type {Verb[]} */
const VERBS = [
  {
    name: "assist", label: "Assist", done: "Your assistance is recorded.", level: 1, fits: (job) => job.status === "running" && job.phase !== "assisted",
    effect: () => "The job runs under your assistance.", command: (ids) => `holdfast job assist ${ids}`,
  },
  {
    name: "unassist", label: "End assistance", done: "The assistance has ended.", level: 1, fits: (job) => job.status === "running" && job.phase === "assisted",
    effect: () => "The job runs by itself again.", command: (ids) => `holdfast job unassist ${ids}`,
  },
  {
    name: "replay", label: "Replay", done: "It was enqueued again.", level: 1, many: true,
    fits: (job) => isOver(job) && job.status !== "succeeded",
    effect: () => "A new job with the same arguments is enqueued.", command: (ids) => `holdfast job replay ${ids}`,
  },
  {
    name: "requeue", label: "Requeue", done: "The requeue is recorded.", level: 2, many: true, fits: (job) => job.status === "stalled",
    effect: () => "Another worker can claim the job. Nothing that its last holder writes is accepted any more. If no attempt is left, the job ends as its policy says.", command: (ids) => `holdfast job requeue ${ids}`,
  },
  {
    name: "cancel", label: "Cancel", done: "The cancellation is recorded.", level: 2, many: true, fits: isLive,
    effect: (job) =>
      HELD.has(job.status)
        ? `${holder(job)} is asked to make its safe exit. After ${grace(job)} s the job is cancelled without it.`
        : "No worker holds the job, so it ends at once.",
    command: (ids) => `holdfast job cancel ${ids}`,
  },
  {
    name: "hard-cancel", route: "cancel", body: { hard: true }, label: "Cancel at once", done: "Its holder has lost it.", level: 3, fits: (job) => HELD.has(job.status),
    effect: (job) => `${holder(job)} loses the job at once, without a safe exit. What it has half done stays half done.`,
    command: (ids) => `holdfast job cancel --hard ${ids}`,
  },
  {
    name: "dead-letter", asksCode: true, label: "Dead-letter", done: "The end is recorded.", level: 2, many: true, fits: isLive,
    effect: () => "The job ends as a dead letter. It can be replayed later.", command: (ids) => `holdfast job dead-letter --reason-code policy_violation ${ids}`,
  },
  {
    name: "discard", label: "Discard", done: "It is noted that nothing more is needed.", level: 2, many: true,
    fits: (job) => (job.status === "failed" || job.status === "dead_lettered") && job.note !== "discarded",
    effect: () => "It is noted that the job needs no further action. The job stays readable.", command: (ids) => `holdfast job discard ${ids}`,
  },
];

/** The name by which `/v1/me` lists a verb, and `/v1/batches` takes it. @param {Verb} verb */
export function permission(verb) {
  return (verb.route ?? verb.name).replaceAll("-", "_");
}

/** The verbs that the person may use on many jobs. */
export function verbsForMany() {
  return VERBS.filter((verb) => verb.many && can(permission(verb)));
}

/**
 * The buttons of one job. A button stays in its place as long as the page is shown: one that does not fit any more is disabled,
 * and one that fits anew is added after the others.
 * @param {string[]} [names] Only these verbs, with a button for each from the beginning.
 */
export function verbBar(names) {
  const node = el("div", { class: "chips verbs" });
  /** @type {Map<Verb, HTMLButtonElement>} */
  const buttons = new Map();
  /** @type {any} */
  let job = null;

  /** @param {Verb} verb */
  function add(verb) {
    const button = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-verb": verb.name }, verb.label + (verb.level > 1 ? "…" : "")));
    button.addEventListener("click", () => whileDisabled(button, () => act(verb, job)).finally(refresh));
    buttons.set(verb, button);
    node.append(button);
  }

  function refresh() {
    for (const [verb, button] of buttons) button.disabled = !job || !verb.fits(job);
  }

  return {
    node,
    /** @param {any} given The job as it is now. Null: it is not known any more. */
    update(given) {
      job = given;
      for (const verb of VERBS) {
        const isWanted = names ? names.includes(verb.name) : job && verb.fits(job);
        if (isWanted && can(permission(verb)) && !buttons.has(verb)) add(verb);
      }
      refresh();
    },
  };
}

/**
 * Does something with one job, after a question if the verb's level wants one.
 * @param {Verb} verb
 * @param {any} job
 */
async function act(verb, job) {
  const given = verb.level === 1 ? {} : await confirm(verb, job);
  if (given === null) return;
  try {
    const body = { ...verb.body, ...given };
    const found = await post(path("v1", "jobs", job.id, verb.route ?? verb.name), body, { rev: job.rev });
    const other = found?.job && found.job.id !== job.id ? found.job.id : null;
    toast(`${job.kind} #${job.id}: ${other ? `replayed as #${other}.` : `${verb.done} It is ${word(found?.job?.status ?? job.status)} now.`}`, other ? { href: `/jobs/${other}`, label: `Job ${other}` } : {});
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    await refused(verb, job, error);
  }
  await loadNow();
}

/** @param {Verb} verb @param {any} job @param {Problem} error */
async function refused(verb, job, error) {
  const hasMoved = error.status === 412;
  await dialog(hasMoved ? `Job ${job.id} has changed meanwhile` : `${verb.label} was refused`, (close) => [
    el("p", null, hasMoved ? `It is now ${error.context.status ?? "another"}, at revision ${error.context.rev ?? "–"}. Nothing was done. Look at it, and decide again.` : error.message),
    el("p", null, error.action),
    el("p", { class: "muted" }, `Request ${error.requestId ?? "–"} · ${error.code}`),
    error.code === "signature_invalid" ? command(verb.command(String(job.id))) : null,
    el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: () => close(true) } }, "Close")),
  ]);
}

/** A field for the reason, or for the code of the reason. @param {Verb} verb */
export function reasonField(verb) {
  if (verb.asksCode) {
    const select = /** @type {HTMLSelectElement} */ (el("select", { id: "reason" }, ...REASON_CODES.map((code) => el("option", { value: code }, code))));
    return { label: el("label", { for: "reason" }, "Reason code"), field: select, body: () => ({ reason_code: select.value }) };
  }
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "reason", maxlength: "500" }));
  const label = el("label", { for: "reason" }, "Reason (optional, shown in the history)");
  return { label, field: input, body: () => (input.value.trim() ? { reason: input.value.trim() } : {}) };
}

/** @param {Verb} verb @param {any} job @returns {Promise<any>} Fields of the body; null if the answer is no. */
function confirm(verb, job) {
  const reason = reasonField(verb);
  return dialog(`${verb.label} job ${job.id}?`, (close) => [
    el("p", null, pill(job.status, job.phase), ` ${job.kind} #${job.id} in queue ${job.queue}`),
    el("p", null, verb.effect(job)),
    reason.label,
    reason.field,
    command(verb.command(String(job.id))),
    el(
      "div",
      { class: "buttons" },
      el("button", { type: "button", autofocus: true, on: { click: () => close(null) } }, "Keep"),
      el("button", { type: "button", class: "danger", "data-confirm": true, on: { click: () => close(reason.body()) } }, `${verb.label} job ${job.id}`),
    ),
  ]);
}
