/** The columns of lists of jobs, and the choice of those that are shown. The choice is kept in the browser. */

import { time } from "../clock.js";
import { el, link, path } from "../dom.js";
import { number, store, stored } from "../format.js";
import { pill } from "../status.js";

const KEY = "holdfast.columns";

/** Why the job is where it is. A job that waits says what its explanation says. @param {any} job */
function why(job) {
  if (job.status === "queued") return [job.why, job.last_error && `Last error: ${job.last_error}`].filter(Boolean).join(" ");
  if (job.last_error && job.status !== "succeeded") return typeof job.last_error === "string" ? job.last_error : "";
  if (job.status === "stalled") return job.stall_reason ?? "";
  if (job.status === "cancelled") return job.cancel_reason ?? "";
  return [job.stage && `stage ${job.stage}`, job.progress !== null && `progress ${number(job.progress)}`].filter(Boolean).join(", ");
}

/** @param {any} job */
function worker(job) {
  const name = job.owner ?? job.last_owner;
  return name ? link(path("workers", name), name) : "";
}

/** The columns of every list of jobs. @type {import("./table.js").Column<any>[]} */
export const COLUMNS = [
  { name: "Id", cell: (job) => link(path("jobs", job.id), String(job.id)) },
  { name: "Kind", cell: (job) => link(path("kinds", job.kind), job.kind), cut: true },
  { name: "Queue", cell: (job) => link(path("queues", job.queue), job.queue), cut: true },
  { name: "Status", cell: (job) => pill(job.status, job.phase) },
  { name: "Attempt", cell: (job) => `${job.attempt}${job.attempts_max ? `/${job.attempts_max}` : ""}`, number: true },
  { name: "Worker", cell: worker, cut: true },
  { name: "Age", cell: (job) => time(job.created_at), number: true },
  { name: "Changed", cell: (job) => time(job.updated_at), number: true },
  { name: "Why", cell: why, cut: true, calm: true },
];
/** Columns that are shown if they are chosen. @type {import("./table.js").Column<any>[]} */
const MORE = [
  { name: "Priority", cell: (job) => String(job.priority), number: true },
  { name: "Available", cell: (job) => time(job.available_at, { until: true }), number: true },
  { name: "Tier", cell: (job) => job.tier ?? "", cut: true },
  { name: "Correlation", cell: (job) => job.correlation_id ?? "", cut: true },
  { name: "Dedupe key", cell: (job) => job.dedupe_key ?? "", cut: true },
];
const ALL = [...COLUMNS.slice(0, -1), ...MORE, ...COLUMNS.slice(-1)];
/** The column that leads to the job always stays. */
const FIXED = "Id";

/** The names of the columns that are shown. @returns {Set<string>} */
function names() {
  try {
    const kept = JSON.parse(stored(KEY) ?? "null");
    if (Array.isArray(kept)) return new Set([FIXED, ...kept]);
  } catch {
    // What is stored is none of ours: the usual columns are shown.
  }
  return new Set(COLUMNS.map((column) => column.name));
}

/** The columns that were chosen in this browser. */
export function chosenColumns() {
  const shown = names();
  return ALL.filter((column) => shown.has(column.name));
}

/** A menu that chooses columns. @param {() => void} changed */
export function columnMenu(changed) {
  const boxes = ALL.filter((column) => column.name !== FIXED).map(({ name }) => {
    const box = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", name, checked: names().has(name) }));
    box.addEventListener("change", () => {
      const shown = names();
      if (box.checked) shown.add(name);
      else shown.delete(name);
      store(KEY, JSON.stringify([...shown]));
      changed();
    });
    return el("label", null, box, name);
  });
  const node = /** @type {HTMLDetailsElement} */ (el("details", { class: "menu-box" }, el("summary", null, "Columns"), el("div", { class: "choices", role: "group", "aria-label": "Columns of the list" }, ...boxes)));
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    node.open = false;
    node.querySelector("summary")?.focus();
  });
  return node;
}
