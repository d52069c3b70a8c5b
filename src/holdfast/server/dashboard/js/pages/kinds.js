/** Kinds: which code is failing or slow? */

import { get } from "../api.js";
import { el, link, path, withQuery } from "../dom.js";
import { count, decimal, duration, number, percent, rateWindow } from "../format.js";
import { listPage } from "../parts/listpage.js";
import { command, countLink, empty } from "../parts/states.js";
import { glyph } from "../status.js";

const LIVE = ["queued", "claimed", "running", "stalled"];

/** Ends of the last hour: all, and those that were no success. @param {any} kind */
function ends(kind) {
  const { succeeded = 0, failed = 0, dead_lettered = 0 } = kind.last_hour;
  return { all: succeeded + failed + dead_lettered, bad: failed + dead_lettered };
}

/** Whether jobs wait that no worker serves. @param {any} kind */
function isUnserved(kind) {
  return kind.workers === 0 && LIVE.some((status) => kind.counts[status]);
}

/** A number that leads to the jobs that it counts. @param {any} kind @param {string} status */
function counted(kind, status) {
  return countLink(withQuery("/jobs", { kind: kind.kind, status }), kind.counts[status]);
}

const page = listPage({
  title: "Kinds",
  load: async ({ signal }) => (await get("/v1/kinds", signal)).kinds,
  answer: (kinds) => {
    const unserved = kinds.filter(isUnserved).length;
    const rated = kinds.find((kind) => kind.rates)?.rates;
    return `${count(kinds.length, "kind")} of jobs. ${rated ? `Rates are of the ${rateWindow(rated)}. ` : ""}${unserved ? `${count(unserved, "kind")} with jobs that no worker serves.` : "Every kind with live jobs has a worker."}`;
  },
  columns: () => [
    { name: "Kind", cell: (/** @type {any} */ kind) => link(path("kinds", kind.kind), kind.kind), cut: true },
    { name: "Waiting", cell: (kind) => counted(kind, "queued"), number: true },
    { name: "Running", cell: (kind) => counted(kind, "running"), number: true },
    { name: "Failed", cell: (kind) => counted(kind, "failed"), number: true },
    { name: "Dead letters", cell: (kind) => countLink(withQuery("/dead-letters", { kind: kind.kind }), kind.dead_letters), number: true },
    { name: "Done/min", cell: (kind) => decimal(kind.rates?.succeeded), number: true },
    { name: "Failed, 1 h", cell: (kind) => (ends(kind).all ? percent(ends(kind).bad / ends(kind).all) : "–"), number: true },
    { name: "Run p50 / p95", cell: (kind) => (kind.run.n ? `${duration(kind.run.p50_ms)} / ${duration(kind.run.p95_ms)}` : "–"), number: true },
    { name: "Wait p95", cell: (kind) => (kind.wait.n ? duration(kind.wait.p95_ms) : "–"), number: true },
    { name: "Workers", cell: (kind) => (isUnserved(kind) ? el("span", null, glyph("warning"), "none") : countLink("/workers", kind.workers)), number: true },
    { name: "Errors of the last hour", cell: (kind) => kind.errors.slice(0, 3).map((/** @type {any} */ one) => `${one.error_class} × ${number(one.n)}`).join(", "), cut: true },
  ],
  key: (kind) => kind.kind,
  empty: () => empty("There are no kinds yet. A kind is the name of the code that runs a job:", command("holdfast job enqueue greet --queue mail")),
});
export const { title, load, watch, draw, update, leave } = page;
