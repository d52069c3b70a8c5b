/** The list of jobs: which jobs are these? */

import { verbsForMany } from "../actions.js";
import { get, Problem } from "../api.js";
import { now } from "../clock.js";
import { el, link, replace, withQuery } from "../dom.js";
import { count, number, quoted } from "../format.js";
import { actOnMany } from "../parts/bulk.js";
import { chosenColumns, columnMenu } from "../parts/columns.js";
import { active, asObject, dropChips, filterRow } from "../parts/filter.js";
import { readJobs } from "../parts/joblist.js";
import { offers } from "../parts/offers.js";
import { search } from "../parts/search.js";
import { command, empty, head, problemBox } from "../parts/states.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { go } from "../router.js";
import { pill, STATUSES, word } from "../status.js";

const NAMES = ["status", "phase", "queue", "kind", "owner", "correlation_id", "dedupe_key", "replay_of", "text", "since", "until"];
/** The filters by which the ledger counts jobs. */
const COUNTED = new Set(["status", "queue", "kind"]);
const SPANS = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };
const PAGE = 100;
const COLLECT = 1000;
const CHOSEN_MAX = 100_000;

/** @type {any} */
let view = null;

export const title = () => "Jobs";

/** The query for the server: a span such as 24h becomes a time. @param {URLSearchParams} query */
function serverQuery(query) {
  const given = asObject(query);
  const span = SPANS[/** @type {keyof typeof SPANS} */ (given.since)];
  if (span) given.since = new Date(now() - span).toISOString();
  return { order: "newest", ...given };
}

/** @param {import("../router.js").Address} address */
export async function load({ query, signal }) {
  // A search that took long is not done again at each change.
  if (view?.search.isLong()) return { totals: (await get("/v1/totals", signal)).rows };
  const asked = serverQuery(query);
  const counted = get("/v1/totals", signal);
  const named = view ? null : counted.then(({ rows }) => asked.text && offers(asked.text, new Set(rows.map((/** @type {any} */ row) => row.kind)), signal));
  const [page, totals] = await Promise.all([firstPage({ limit: PAGE, ...asked }, signal), counted]);
  // A cursor belongs to its filter, so the next page has the same time, not the same span.
  return { ...page, totals: totals.rows, named: await named, since: asked.since ?? "", read_at: new Date(now()).toISOString() };
}

/** Reads the first page. A role from which contents are hidden may not search for a text: the page says so. @param {any} query @param {AbortSignal} signal */
async function firstPage(query, signal) {
  try {
    return await readJobs(query, signal);
  } catch (error) {
    if (query.text && error instanceof Problem && error.status === 403) return { jobs: [], next_cursor: null, searched: 0, stopped: false, refused: error };
    throw error;
  }
}

/** Which events change the list. @param {import("../router.js").Address} address */
export function watch({ query }) {
  return { queue: query.get("queue"), kind: query.get("kind") };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { query, signal }) {
  const chosen = new Map();
  let lastId = /** @type {number | null} */ (null);
  const all = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", "aria-label": "Select all jobs on this page" }));
  const verbs = verbsForMany();
  const boxes = verbs.length ? [{ name: "Selected", check: true, heading: all, cell: box }] : [];
  const makeList = () => table("Jobs", [...boxes, ...chosenColumns()], (job) => job.id, {
    holds: () => chosen.size > 0 || window.scrollY > 150,
    shown: (rows) => (view.rows = rows),
    waiting: (n) => (n === 1 ? "1 new job matches – show" : `${number(n)} new jobs match – show`),
  });
  let list = makeList();
  const pills = el("ul", { class: "chips", "aria-label": "Jobs by status" });
  const sheet = el("div", { class: "sheet", hidden: true });
  const note = el("div", null);
  const pages = el("p", null);
  const exported = withQuery("/v1/jobs/export", { ...serverQuery(query), cursor: null });

  /** @param {any} job */
  function box(job) {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", "aria-label": `Select job ${job.id}`, "data-id": job.id }));
    input.addEventListener("click", (event) => choose(job.id, input.checked, event.shiftKey));
    return input;
  }

  /** @param {number} id @param {boolean} isOn @param {boolean} isRange */
  function choose(id, isOn, isRange) {
    const ids = view.rows.map((/** @type {any} */ job) => job.id);
    const [from, to] = isRange && lastId !== null ? [ids.indexOf(lastId), ids.indexOf(id)].sort((a, b) => a - b) : [ids.indexOf(id), ids.indexOf(id)];
    for (const job of view.rows.slice(from, to + 1)) isOn ? chosen.set(job.id, job) : chosen.delete(job.id);
    lastId = id;
    showChosen();
  }

  function showChosen() {
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (list.node.querySelectorAll("input[data-id]"))) {
      input.checked = chosen.has(Number(input.dataset.id));
      input.closest("tr")?.classList.toggle("chosen", input.checked);
    }
    all.checked = chosen.size > 0 && view.rows.every((/** @type {any} */ job) => chosen.has(job.id));
    sheet.hidden = chosen.size === 0;
    if (sheet.hidden) return;
    const buttons = verbs.map((verb) =>
      el("button", { type: "button", "data-verb": verb.name, on: { click: async () => (await actOnMany(verb, [...chosen.values()])) && clear() } }, `${verb.label}…`),
    );
    const every = el("button", { type: "button", class: "link", on: { click: chooseEvery } }, "Select all that match");
    const none = el("button", { type: "button", class: "link", on: { click: clear } }, "Select none");
    replace(sheet, el("span", null, `${count(chosen.size, "job")} selected`), ...buttons, every, none);
  }

  function clear() {
    chosen.clear();
    showChosen();
  }

  /** Collects ids and revisions page by page. */
  async function chooseEvery() {
    let after = 0;
    do {
      const found = await get(withQuery("/v1/jobs", { fields: "brief", ...serverQuery(query), order: "oldest", cursor: null, after, limit: COLLECT }));
      for (const job of found.jobs) chosen.set(job.id, job);
      after = found.next_after ?? 0;
      showChosen();
    } while (after && chosen.size < CHOSEN_MAX);
    if (after) toast(`Only the first ${number(CHOSEN_MAX)} jobs are selected. For more, use the command line.`);
  }

  all.addEventListener("click", () => {
    for (const job of view.rows) all.checked ? chosen.set(job.id, job) : chosen.delete(job.id);
    showChosen();
  });
  const menu = columnMenu(() => {
    const old = list.node;
    list = makeList();
    old.replaceWith(list.node);
    list.update(view.rows);
    showChosen();
  });

  view = { rows: [], show, update };
  const searching = search({
    page: data,
    wanted: PAGE,
    read: (cursor, limit) => readJobs({ ...serverQuery(query), since: data.since, after: null, cursor, limit }, signal).then((page) => ({ ...page, read_at: new Date(now()).toISOString() })),
    show: () => view && show(data),
    again: async () => go(location.pathname + location.search, { replace: true, keepFocus: true }),
    newest: withQuery("/jobs", { ...asObject(query), order: null, cursor: null }),
    signal,
  });
  view.search = searching;

  /** Shows what is known anew. @param {any} given */
  function update(given) {
    showPills(pills, given.totals, query);
    if (!given.jobs) return;
    data = given;
    searching.update(given);
    show(given);
  }

  /** Shows a page of jobs. @param {any} given */
  function show(given) {
    list.update(given.jobs);
    list.node.hidden = view.rows.length === 0;
    if (given.refused) replace(note, problemBox(given.refused));
    else replace(note, view.rows.length || searching.isOpen() ? null : nothing(query, given.totals));
    const next = given.next_cursor && el("a", { href: withQuery("/jobs", { ...asObject(query), since: given.since, cursor: given.next_cursor }), "data-page": "next" }, "Next page");
    const first = query.get("cursor") && el("a", { href: withQuery("/jobs", { ...asObject(query), cursor: null }), "data-page": "previous" }, "First page");
    replace(pages, first, first && next ? " · " : null, next);
    if (chosen.size) showChosen();
  }

  const kinds = new Set(data.totals.map((/** @type {any} */ row) => row.kind));
  const fields = [
    { name: "queue", label: "Queue", known: [...new Set(data.totals.map((/** @type {any} */ row) => row.queue))] },
    { name: "kind", label: "Kind", known: [...kinds].sort() },
    { name: "owner", label: "Worker" },
    { name: "since", label: "Enqueued", choices: /** @type {[string, string][]} */ ([["", "at any time"], ["1h", "in the last hour"], ["24h", "in the last 24 h"], ["7d", "in the last 7 d"]]) },
    { name: "text", label: "Text" },
    { name: "order", label: "Order", choices: /** @type {[string, string][]} */ ([["", "newest first"], ["oldest", "oldest first"], ["-updated", "last changed first"], ["available", "next available first"]]) },
  ];
  root.append(
    head("Jobs", menu, el("a", { href: exported, download: "jobs.ndjson" }, "Export NDJSON")),
    pills,
    filterRow("/jobs", query, fields),
    query.getAll("status").includes("dead_lettered") ? el("p", { class: "muted" }, "Replayed and discarded ones are in this list too. ", link("/dead-letters", "Dead letters"), " has those that wait for a decision.") : "",
    data.named || "",
    searching.node,
    note,
    list.node,
    sheet,
    pages,
    command(commandLine(query)),
  );
  showPills(pills, data.totals, query);
  show(data);
}

/** The same list on the command line. @param {URLSearchParams} query */
function commandLine(query) {
  const options = active(query, ["status", "queue", "kind", "owner", "correlation_id", "dedupe_key", "text"]).map(([name, value]) => ` --${name.replaceAll("_", "-")}=${quoted(value)}`);
  return `holdfast job list${options.join("")}`;
}

/** How many jobs of each status there are. With other filters than queue and kind that is not known. @param {Element} pills @param {any[]} totals @param {URLSearchParams} query */
function showPills(pills, totals, query) {
  const [queue, kind] = [query.get("queue"), query.get("kind")];
  const isKnown = NAMES.every((name) => COUNTED.has(name) || !query.get(name));
  const rows = totals.filter((row) => (!queue || row.queue === queue) && (!kind || row.kind === kind));
  const of = (/** @type {string} */ status) => rows.filter((row) => row.status === status).reduce((sum, row) => sum + row.n, 0);
  const chosen = query.getAll("status");
  const chip = (/** @type {string} */ status, /** @type {string} */ text, /** @type {number} */ n) => {
    const href = withQuery("/jobs", { ...asObject(query), status, cursor: null });
    return el("li", null, el("a", { class: "chip", href, "aria-current": (status ? chosen.includes(status) : !chosen.length) ? "true" : null }, status ? pill(status) : text, isKnown ? el("span", { class: "n" }, number(n)) : null));
  };
  replace(pills, chip("", "All", STATUSES.reduce((sum, status) => sum + of(status), 0)), ...STATUSES.map((status) => chip(status, word(status), of(status))));
}

/** @param {URLSearchParams} query @param {any[]} totals */
function nothing(query, totals) {
  const pairs = active(query, NAMES);
  if (pairs.length) return empty(`No job matches ${pairs.map(([name, value]) => `${name} = ${value}`).join(" and ")}.`, dropChips("/jobs", query, pairs));
  if (totals.length) return empty("There are no more jobs on this page.");
  return empty("This ledger has no jobs yet. Enqueue one:", command("holdfast job enqueue greet --queue mail --args '{\"name\": \"Ada\"}'"));
}

/** @param {any} data */
export function update(data) {
  view?.update(data);
}

export function leave() {
  view = null;
}

