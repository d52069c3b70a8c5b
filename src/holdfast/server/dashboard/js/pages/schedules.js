/** Schedules: which jobs are made at which times? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, path } from "../dom.js";
import { argument, count, duration, number } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { listPage } from "../parts/listpage.js";
import { command, empty } from "../parts/states.js";
import { glyph } from "../status.js";

/** @param {any} schedule */
function next(schedule) {
  if (schedule.paused_at) return el("span", null, glyph("stalled"), `paused by ${schedule.paused_by}, `, time(schedule.paused_at));
  return schedule.next_at ? time(schedule.next_at, { until: true }) : "ended";
}

/** @param {any} schedule */
function times(schedule) {
  return schedule.cron ? `${schedule.cron} ${schedule.tz}` : `every ${duration(schedule.every_s * 1000)}`;
}

/** @param {any} schedule */
function last(schedule) {
  if (schedule.last_error) return el("span", null, glyph("failed"), schedule.last_error);
  return schedule.last_job ? el("a", { href: path("jobs", schedule.last_job) }, time(schedule.last_at, { ago: true })) : "–";
}

/** @param {any} schedule @param {() => Promise<void>} reload */
function buttons(schedule, reload) {
  const { name } = schedule;
  const of = (/** @type {string} */ verb) => path("v1", "schedules", name, verb);
  const typed = (/** @type {string} */ verb) => `holdfast schedule ${verb} ${argument(name)}`;
  return [
    sendButton({ verb: "run_schedule", label: "Run now", question: `Make a job of ${name} now?`, effect: "Its times stay as they are.", command: typed("run"), path: of("run"), done: "The job is made.", reload }),
    schedule.paused_at
      ? sendButton({ verb: "resume_schedule", label: "Resume", path: of("resume"), done: `${name} makes jobs again.`, reload })
      : sendButton({ verb: "pause_schedule", label: "Pause", question: `Pause ${name}?`, effect: "It makes no jobs until it is resumed, and misses none.", command: typed("pause"), path: of("pause"), done: `${name} is paused.`, reload }),
    sendButton({ verb: "remove_schedule", label: "Remove", question: `Remove ${name}?`, effect: schedule.declared ? "Its handler declares it: it comes back when a worker starts. Pause it instead." : "Its jobs stay.", command: typed("remove"), method: "DELETE", path: path("v1", "schedules", name), done: `${name} is removed.`, reload }),
  ];
}

const page = listPage({
  title: "Schedules",
  polls: true,
  load: async ({ signal }) => (await get("/v1/schedules?limit=1000", signal)).schedules,
  answer: (schedules) => `${count(schedules.length, "schedule")}; ${number(schedules.filter((/** @type {any} */ one) => one.paused_at).length)} paused.`,
  columns: (reload) => [
    { name: "Schedule", cell: (/** @type {any} */ one) => one.name, cut: true },
    { name: "Kind", cell: (one) => el("a", { href: path("kinds", one.kind) }, one.kind), cut: true },
    { name: "Queue", cell: (one) => el("a", { href: path("queues", one.queue) }, one.queue), cut: true },
    { name: "Times", cell: times },
    { name: "Next", cell: next },
    { name: "Last", cell: last, cut: true },
    { name: "Made", cell: (one) => number(one.fired), number: true },
    { name: "Skipped", cell: (one) => number(one.skipped), number: true },
    { name: "", cell: (one) => buttons(one, reload) },
  ],
  key: (one) => one.name,
  empty: () => empty("There are no schedules. A schedule makes a job at each of its times:", command('holdfast schedule add nightly report --cron "0 3 * * *" --queue reports')),
});
export const { title, load, watch, draw, update, leave } = page;
