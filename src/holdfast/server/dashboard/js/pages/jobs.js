/** The list of jobs: which jobs are these? */

import { verbsForMany } from "../actions.js";
import { get } from "../api.js";
import { now } from "../clock.js";
import { el, replace, withQuery } from "../dom.js";
import { count, number, quoted } from "../format.js";
import { actOnMany } from "../parts/bulk.js";
import { chosenColumns, columnMenu } from "../parts/columns.js";
import { isDialogOpen } from "../parts/dialog.js";
import { active, asObject, dropChips, filterRow } from "../parts/filter.js";
import { command, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { pill, STATUSES, word } from "../status.js";

const NAMES = ["status", "phase", "queue", "kind", "owner", "correlation_id", "replay_of", "text", "since", "until"];
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
  const asked = serverQuery(query);
  const [page, counts] = await Promise.all([
    get(withQuery("/v1/jobs", { fields: "brief", limit: PAGE, ...asked }), signal),
    get("/v1/counts", signal),
  ]);
  // A cursor belongs to its filter, so the next page has the same time, not the same span.
  return { ...page, counts: counts.counts, since: asked.since ?? "" };
}

/** Which events change the list. @param {import("../router.js").Address} address */
export function watch({ query }) {
  return { queue: query.get("queue"), kind: query.get("kind") };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { query }) {
  const chosen = new Map();
  let lastId = /** @type {number | null} */ (null);
  const all = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", "aria-label": "Select all jobs on this page" }));
  const verbs = verbsForMany();
  const boxes = verbs.length ? [{ name: "Selected", check: true, heading: all, cell: box }] : [];
  const makeList = () => table("Jobs", [...boxes, ...chosenColumns()], (job) => job.id);
  let list = makeList();
  const pills = el("ul", { class: "chips", "aria-label": "Jobs by status" });
  const more = el("button", { type: "button", class: "new-rows", hidden: true });
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
  more.addEventListener("click", () => view.show(view.latest, true));

  const menu = columnMenu(() => {
    const old = list.node;
    list = makeList();
    list.update(view.rows);
    old.replaceWith(list.node);
    showChosen();
  });

  view = { rows: [], latest: data, show };

  /** Shows a page. While a person works with the list, new rows wait behind a button. @param {any} given @param {boolean} all */
  function show(given, all) {
    view.latest = given;
    showPills(pills, given.counts, query);
    const known = new Map(given.jobs.map((/** @type {any} */ job) => [job.id, job]));
    const isHeld = !all && view.rows.length > 0 && (chosen.size > 0 || window.scrollY > 150 || list.node.matches(":hover, :focus-within") || isDialogOpen());
    const fresh = given.jobs.filter((/** @type {any} */ job) => !view.rows.some((/** @type {any} */ row) => row.id === job.id));
    view.rows = isHeld ? view.rows.map((/** @type {any} */ row) => known.get(row.id) ?? row) : given.jobs;
    list.update(view.rows);
    more.hidden = !isHeld || fresh.length === 0;
    more.textContent = fresh.length === 1 ? "1 new job matches – show" : `${number(fresh.length)} new jobs match – show`;
    list.node.hidden = view.rows.length === 0;
    replace(note, view.rows.length ? null : nothing(query, given.counts));
    const next = given.next_cursor && el("a", { href: withQuery("/jobs", { ...asObject(query), since: given.since, cursor: given.next_cursor }), "data-page": "next" }, "Next page");
    const first = query.get("cursor") && el("a", { href: withQuery("/jobs", { ...asObject(query), cursor: null }), "data-page": "previous" }, "First page");
    replace(pages, first, first && next ? " · " : null, next);
    if (chosen.size) showChosen();
  }

  const fields = [
    { name: "queue", label: "Queue", known: Object.keys(data.counts) },
    { name: "kind", label: "Kind", known: [...new Set(data.jobs.map((/** @type {any} */ job) => job.kind))] },
    { name: "owner", label: "Worker" },
    { name: "since", label: "Enqueued", choices: /** @type {[string, string][]} */ ([["", "at any time"], ["1h", "in the last hour"], ["24h", "in the last 24 h"], ["7d", "in the last 7 d"]]) },
    { name: "text", label: "Text" },
    { name: "order", label: "Order", choices: /** @type {[string, string][]} */ ([["", "newest first"], ["oldest", "oldest first"], ["-updated", "last changed first"], ["available", "next available first"]]) },
  ];
  root.append(
    head("Jobs", menu, el("a", { href: exported, download: "jobs.ndjson" }, "Export NDJSON")),
    pills,
    filterRow("/jobs", query, fields),
    more,
    note,
    list.node,
    sheet,
    pages,
    command(commandLine(query)),
  );
  show(data, true);
}

/** The same list on the command line. @param {URLSearchParams} query */
function commandLine(query) {
  const options = active(query, ["status", "queue", "kind", "owner", "text"]).map(([name, value]) => ` --${name}=${quoted(value)}`);
  return `holdfast job list${options.join("")}`;
}

/** @param {Element} pills @param {any} counts @param {URLSearchParams} query */
function showPills(pills, counts, query) {
  const queue = query.get("queue");
  const rows = queue ? [counts[queue] ?? {}] : Object.values(counts);
  const of = (/** @type {string} */ status) => rows.reduce((sum, row) => sum + (row[status] ?? 0), 0);
  const chosen = query.getAll("status");
  const chip = (/** @type {string} */ status, /** @type {string} */ text, /** @type {number} */ n) => {
    const href = withQuery("/jobs", { ...asObject(query), status, cursor: null });
    return el("li", null, el("a", { class: "chip", href, "aria-current": (status ? chosen.includes(status) : !chosen.length) ? "true" : null }, status ? pill(status) : text, el("span", { class: "n" }, number(n))));
  };
  replace(pills, chip("", "All", STATUSES.reduce((sum, status) => sum + of(status), 0)), ...STATUSES.map((status) => chip(status, word(status), of(status))));
}

/** @param {URLSearchParams} query @param {any} counts */
function nothing(query, counts) {
  const pairs = active(query, NAMES);
  if (pairs.length) return empty(`No job matches ${pairs.map(([name, value]) => `${name} = ${value}`).join(" and ")}.`, dropChips("/jobs", query, pairs));
  if (Object.keys(counts).length) return empty("There are no more jobs on this page.");
  return empty("This ledger has no jobs yet. Enqueue one:", command("holdfast job enqueue greet --queue mail --args '{\"name\": \"Ada\"}'"));
}

/** @param {any} data */
export function update(data) {
  view?.show(data, false);
}

export function leave() {
  view = null;
}

