/** One worker: what it holds, and what it said about itself. */

import { get, getIfThere } from "../api.js";
import { time } from "../clock.js";
import { el, link, replace, withQuery } from "../dom.js";
import { COLUMNS } from "../parts/columns.js";
import { readJobs } from "../parts/joblist.js";
import { jsonBlock } from "../parts/json.js";
import { empty, facts, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { stateOf } from "./workers.js";

/** @type {any} */
let view = null;

/** @param {import("../router.js").Address} address */
export const title = ({ name }) => `Worker ${name}`;

/** @param {import("../router.js").Address} address */
export async function load({ name, signal }) {
  const [workers, held, keys, runs] = await Promise.all([
    get("/v1/workers", signal),
    readJobs({ owner: name, order: "newest", limit: 100 }, signal),
    getIfThere("/v1/keys", signal, { keys: [] }),
    getIfThere("/v1/runs", signal, { runs: [] }),
  ]);
  return {
    workers: workers.workers.filter((/** @type {any} */ one) => one.name === name),
    held: held.jobs,
    keys: keys.keys.filter((/** @type {any} */ key) => key.role === "worker" && key.name === name),
    run: runs.runs.find((/** @type {any} */ one) => one.name === name),
  };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { name }) {
  const about = el("div", null);
  const lease = { name: "Lease ends", number: true, cell: (/** @type {any} */ job) => (job.claim_expires_at ? time(job.claim_expires_at, { until: true }) : "") };
  const held = table("Jobs that it holds", [...COLUMNS.slice(0, 5), lease, ...COLUMNS.slice(6)], (job) => job.id);
  const none = el("p", { class: "muted" }, "It holds no job.");
  root.append(head(`Worker ${name}`), about, el("h2", null, "Jobs that it holds"), none, held.node, el("p", null, link(withQuery("/jobs", { text: name }), "Jobs that name it")));
  view = { about, held, none, name };
  update(data);
}

/** @param {any} data */
export function update({ workers, held, keys, run }) {
  const parts = workers.map((/** @type {any} */ one) => el("section", { class: "panel" },
    facts(["state", stateOf(one)], ["incarnation", one.incarnation], ["started", time(one.started_at, { ago: true })], ["last seen", time(one.seen_at, { ago: true })],
      ["key", keys.length ? keys.map((/** @type {any} */ key) => key.key_id).join(", ") : null],
      ["supervised", run ? `run ${run.run}, ${run.restarts} restarts${run.terminal_reason ? `, ended: ${run.terminal_reason}` : ""}` : null]),
    el("details", null, el("summary", null, "What it says about itself"), jsonBlock(one.details)),
  ));
  const kept = view.about.querySelector("details")?.open;
  if (replace(view.about, ...(parts.length ? parts : [empty(`${view.name} has not signed in, or has signed out.`)])) && kept) view.about.querySelector("details")?.setAttribute("open", "");
  view.held.update(held);
  view.held.node.hidden = held.length === 0;
  view.none.hidden = held.length > 0;
}

export function leave() {
  view = null;
}
