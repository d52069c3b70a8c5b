/** What a group is at, as a bar and in words, and the buttons that close, cancel and replay it. */

import { get } from "../api.js";
import { el, link, path, svg, whileDisabled } from "../dom.js";
import { argument, count, number } from "../format.js";
import { can, hasAllQueues } from "../me.js";
import { STATUSES, word } from "../status.js";
import { askAndSend } from "./confirm.js";
import { toast } from "./toast.js";

const LIVE = STATUSES.slice(0, 4);
const ENDED = STATUSES.slice(4);
/** The statuses of jobs that have not ended, as a query. */
export const NOT_ENDED = LIVE.join();
/** The statuses of jobs that ended without success, as a query. */
export const DEAD = ENDED.slice(1).join();

/** Counts by status that are not zero. Without a count of each live status: of all that have not ended. @param {any} group @returns {[string, number][]} */
export function countsOf(group) {
  const live = group.live_by_status ? LIVE.map((status) => [status, group.live_by_status[status] ?? 0]) : [];
  const ended = ENDED.map((status) => [status, group[status]]);
  const rest = group.live_by_status ? [] : [["not_ended", group.live]];
  return /** @type {[string, number][]} */ ([...live, ...ended, ...rest]).filter(([, n]) => n > 0);
}

/** "2 queued, 1 failed". @param {[string, number][]} counts */
function inWords(counts) {
  return counts.map(([status, n]) => `${number(n)} ${word(status)}`).join(", ");
}

/** The counts as a bar. @param {any} group */
export function bar(group) {
  const counts = countsOf(group);
  let x = 0;
  const parts = counts.map(([status, n]) => {
    const width = (100 * n) / group.total;
    const made = svg("rect", { class: status, x, width, y: 0, height: 10 });
    x += width;
    return made;
  });
  return svg("svg", { class: "parts", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": inWords(counts) || "no jobs" }, ...parts);
}

/** @param {any} group */
export function stateOf(group) {
  if (group.cancelled_at) return group.done ? "cancelled" : "being cancelled";
  if (group.done) return "done";
  return group.closed_at ? "closed" : "open";
}

/** A follow-up job: a link to it once it is made. @param {any} item @param {number | null} id */
export function followUp(item, id) {
  if (!item) return "";
  return id === null ? `${item.kind}, not made yet` : link(path("jobs", id), `${item.kind} #${id}`);
}

/**
 * A button that asks about the group as it is when it is clicked.
 * @param {string} verb @param {string} label @param {string} name
 * @param {(group: any) => {effect: string, jobs?: number, done: string | ((answer: any) => string)}} about
 * @param {() => Promise<void>} reload
 */
function button(verb, label, name, about, reload) {
  const route = verb.replace("_group", "");
  const made = /** @type {HTMLButtonElement} */ (el("button", { type: "button", "data-verb": verb }, `${label}…`));
  made.addEventListener("click", () => whileDisabled(made, async () => {
    try {
      const { group } = await get(path("v1", "groups", name));
      await askAndSend({ label: `${label} ${name}`, question: `${label} group ${name}?`, command: `holdfast group ${route} ${argument(name)}`, path: path("v1", "groups", name, route), reload, ...about(group) });
    } catch (/** @type {any} */ error) {
      toast(`${error.message} ${error.action ?? ""}`);
    }
  }));
  return made;
}

/** @param {any} change */
function left(change) {
  return change.refused ? ` ${count(change.refused, "job")} ${change.refused === 1 ? "was" : "were"} left as they were: ${change.refusals[0].message}.` : "";
}

/** How many jobs ended without success. @param {any} group */
export function dead(group) {
  return group.failed + group.cancelled + group.dead_lettered;
}

/** The verbs that fit the group and that the person may use. @param {any} group @param {() => Promise<void>} reload */
export function buttons(group, reload) {
  const { name } = group;
  const close = () => button("close_group", group.closed_at ? "Try again to close" : "Close", name, () => ({ effect: "No more jobs can join. When all its jobs have succeeded, its follow-up job is made.", done: `Group ${name} is closed.` }), reload);
  const cancel = () => button("cancel_group", "Cancel", name, (now) => ({
    effect: `No more jobs can join. ${count(now.live, "job")} that ${now.live === 1 ? "has" : "have"} not ended ${now.live === 1 ? "is" : "are"} cancelled${now.live ? ` (${inWords(countsOf(now).filter(([status]) => LIVE.includes(status)))})` : ""}. Workers that hold one are asked to make their safe exit.`,
    jobs: now.live, done: (change) => `${count(change.changed, "job")} ${change.changed === 1 ? "was" : "were"} told to end.${left(change)}`,
  }), reload);
  const replay = () => button("replay_group", "Replay", name, (now) => ({
    effect: `${count(dead(now), "job")} did not succeed: ${inWords(countsOf(now).filter(([status]) => ENDED.slice(1).includes(status)))}. Each is enqueued again, and the new job takes its place in the group. Discarded jobs are left out.`,
    jobs: dead(now), done: (change) => `${count(change.changed, "job")} ${change.changed === 1 ? "is" : "are"} replayed.${left(change)}`,
  }), reload);
  return [
    can("close_group") && (!group.closed_at || group.last_error) && close(), " ",
    can("cancel_group") && hasAllQueues() && !group.done && (!group.cancelled_at || group.live > 0) && cancel(), " ",
    can("replay_group") && hasAllQueues() && dead(group) > 0 && replay(),
  ];
}
