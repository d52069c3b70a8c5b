/** The first page: is it well, and if not, where do I look? */

import { get } from "../api.js";
import { everySecond, time } from "../clock.js";
import { showCounts } from "../counts.js";
import { el, link, path, replace, setText } from "../dom.js";
import { count, decimal, number, rateWindow } from "../format.js";
import { historyCharts, RUN, THROUGHPUT, WAIT } from "../parts/history.js";
import { QUEUE_COLUMNS } from "../parts/queue.js";
import { sparkline } from "../parts/sparkline.js";
import { command, countLink, empty, head } from "../parts/states.js";
import { table } from "../parts/table.js";
import { glyph } from "../status.js";

const LINES_EVERY_MS = 60_000;
const NAMED_MAX = 3;
/** @type {any} */
let view = null;

export const title = () => "Overview";

/** @param {import("../router.js").Address} address */
export async function load({ signal }) {
  const found = await get("/v1/overview", signal);
  showCounts(found);
  return found;
}

/** A number that leads to what it counts. @param {string} name @param {string} href @param {string} sign */
function tile(name, href, sign) {
  const value = el("span", { class: "value" }, "–");
  const more = el("span", { class: "more" });
  const line = el("span", { class: "line" });
  const node = el("li", null, el("a", { class: "tile", href, "data-tile": name }, el("span", { class: "name" }, sign ? glyph(sign) : null, name), value, more, line));
  return {
    node,
    line,
    /** @param {import("../dom.js").Child} given @param {...import("../dom.js").Child} rest */
    show(given, ...rest) {
      replace(value, given);
      replace(more, ...rest);
    },
  };
}

/** @param {HTMLElement} root @param {any} data @param {import("../router.js").Address} address */
export function draw(root, data, { signal }) {
  const answer = el("p", { class: "answer" });
  const tiles = {
    waiting: tile("waiting", "/jobs?status=queued", "queued"),
    running: tile("running", "/jobs?status=running", "running"),
    stalled: tile("stalled", "/jobs?status=stalled", "stalled"),
    failed: tile("failed", "/jobs?status=failed", "failed"),
    letters: tile("dead letters", "/dead-letters", "dead_lettered"),
    oldest: tile("oldest waiting", "/queues", ""),
  };
  const charts = historyCharts({}, { throughput: THROUGHPUT, wait: WAIT, run: RUN }, signal);
  const bars = el("div", { class: "bars" });
  const silent = el("p", { class: "muted" });
  const queues = table("Queues with the most waiting jobs", QUEUE_COLUMNS, (queue) => queue.name);
  const findings = el("ul", { class: "findings" });
  const first = el("div", null,
    empty("This ledger has no jobs yet. Try these, one after the other:", el("ol", null,
      el("li", null, "Enqueue a job: ", command("holdfast job enqueue greet --queue mail --args '{\"name\": \"Ada\"}'")),
      el("li", null, "Run a worker: ", command("holdfast worker run yourapp:app")),
      el("li", null, "Or watch three workers, one of them killed: ", command("holdfast demo")),
    )),
  );
  const full = el("div", null,
    el("ul", { class: "tiles" }, ...Object.values(tiles).map((one) => one.node)),
    charts.node,
    el("div", { class: "columns" },
      el("section", { class: "panel" }, el("h2", null, "Workers by age of their last sign of life"), bars, silent, link("/workers", "All workers")),
      el("section", { class: "panel" }, el("h2", null, "Health"), findings),
    ),
    el("h2", null, "Queues with the most waiting jobs"),
    queues.node,
    el("p", null, link("/queues", "All queues")),
  );
  const asOf = el("span", { class: "aside" });
  root.append(head("Overview", asOf), answer, first, full);
  const lines = minuteLines(tiles, signal);
  view = { answer, asOf, tiles, charts, bars, silent, queues, findings, first, full, lines };
  update(data);
}

/** Small lines of the last hour in the tiles, drawn again each minute. @param {any} tiles @param {AbortSignal} signal */
function minuteLines(tiles, signal) {
  let drawnAt = -Infinity;
  async function draw() {
    drawnAt = performance.now();
    const [depth, errors] = await Promise.all(["depth", "errors"].map((metric) => get(`/v1/history?metric=${metric}`, signal).catch(() => null)));
    const show = (/** @type {any} */ tile, /** @type {any} */ history, /** @type {string} */ key, /** @type {string} */ label) => {
      const values = history?.points.map((/** @type {any} */ point) => (point.values === null || point.values[key] === null ? null : Number(point.values[key]))) ?? [];
      replace(tile.line, values.some((/** @type {any} */ value) => value) ? sparkline(values, label) : null);
    };
    show(tiles.waiting, depth, "depth", "Waiting jobs of the last hour");
    show(tiles.stalled, errors, "stalled", "Stalls of the last hour");
    show(tiles.failed, errors, "failed", "Failures of the last hour");
    show(tiles.letters, errors, "dead_lettered", "Dead letters of the last hour");
  }
  draw();
  return everySecond(() => performance.now() - drawnAt > LINES_EVERY_MS && draw());
}

/** @param {any} data */
export function update(data) {
  const { counts, rates, workers } = data;
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  view.first.hidden = total > 0;
  view.full.hidden = total === 0;
  showAnswer(data, total);
  replace(view.asOf, "as of ", time(data.as_of.at ?? data.now, { ago: true }));
  view.tiles.waiting.show(number(counts.queued ?? 0), rates ? `${decimal(rates.enqueued)} a minute come in, ${rateWindow(rates)}` : "");
  view.tiles.running.show(number((counts.running ?? 0)), rates ? `${decimal(rates.succeeded)} a minute done, ${rateWindow(rates)}` : "");
  view.tiles.stalled.show(number(counts.stalled ?? 0), counts.claimed ? `${count(counts.claimed, "job")} claimed` : "");
  view.tiles.failed.show(number(counts.failed ?? 0), data.failed_24h === null ? "" : `${number(data.failed_24h)} in 24 h, dead letters included`);
  view.tiles.letters.show(number(data.dead_letters), "neither replayed nor discarded");
  const oldest = data.oldest[0];
  view.tiles.oldest.show(oldest ? time(oldest.ready_since) : "none", oldest ? `queue ${oldest.queue}` : "");
  const all = Math.max(1, workers.fresh + workers.late + workers.silent);
  replace(view.bars, ...bar("< 15 s", "succeeded", workers.fresh, all), ...bar("< 45 s", "stalled", workers.late, all), ...bar("silent", "failed", workers.silent, all));
  for (const track of view.bars.querySelectorAll("i")) track.style.setProperty("width", `${track.dataset.part}%`);
  replace(view.silent, workers.silent_names.length ? ["Silent: ", ...workers.silent_names.flatMap((/** @type {string} */ name) => [link(path("workers", name), name), " "])] : "");
  view.queues.update(data.queues);
  showFindings(data.findings);
}

/** @param {string} name @param {string} hue @param {number} n @param {number} all */
function bar(name, hue, n, all) {
  return [el("span", null, name), el("span", { class: `track ${hue}` }, el("i", { "data-part": ((100 * n) / all).toFixed(1) })), countLink("/workers", n)];
}

/** @param {any} data @param {number} total */
function showAnswer(data, total) {
  const warnings = data.findings.filter((/** @type {any} */ one) => one.severity === "warning");
  if (total === 0 && !warnings.length) setText(view.answer, "Nothing has happened here yet.");
  else if (!warnings.length) replace(view.answer, glyph("well"), "The doctor finds nothing wrong.");
  else replace(view.answer, glyph("warning"), `The doctor warns of ${warnings.length === 1 ? "one thing" : `${number(warnings.length)} things`}: ${warnings.slice(0, NAMED_MAX).map((/** @type {any} */ one) => one.words).join(" · ")}${warnings.length > NAMED_MAX ? " · and more below" : ""}`);
}

/** @param {any[]} findings */
function showFindings(findings) {
  const worth = findings.filter((one) => one.severity !== "well").sort((a, b) => Number(b.severity === "warning") - Number(a.severity === "warning"));
  const well = findings.length - worth.length;
  const items = worth.map((one) => el("li", null, glyph(one.severity), el("strong", null, one.code.replaceAll("_", " ")), ` ${one.words}`, one.action ? el("div", { class: "muted" }, one.action) : null));
  replace(view.findings, ...items, el("li", null, glyph("well"), `${count(well, "check")} well.`));
}

export function leave() {
  view?.charts.leave();
  view?.lines();
  view = null;
}
