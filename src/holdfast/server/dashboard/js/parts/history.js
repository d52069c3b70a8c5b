/** Charts of what happened over time, with a choice of how long. */

import { get } from "../api.js";
import { everySecond, now } from "../clock.js";
import { el, withQuery } from "../dom.js";
import { store, stored } from "../format.js";
import { chart } from "./chart.js";

const SPANS = /** @type {const} */ ({ "1 h": 3_600_000, "6 h": 21_600_000, "24 h": 86_400_000, "7 d": 604_800_000 });
const EVERY_MS = 60_000;

export const THROUGHPUT = { title: "Throughput", columns: true, series: [
  { key: "succeeded", name: "done", hue: "succeeded" }, { key: "failed", name: "failed", hue: "failed" },
  { key: "dead_lettered", name: "dead letters", hue: "dead_lettered" }, { key: "cancelled", name: "cancelled", hue: "cancelled" },
] };
export const DEPTH = { title: "Waiting jobs", series: [{ key: "depth", name: "waiting", hue: "claimed" }] };
const PERCENTILES = [{ key: "p50_ms", name: "p50", hue: "claimed" }, { key: "p95_ms", name: "p95", hue: "stalled", style: "p95" }];
export const WAIT = { title: "Wait until claimed", times: true, series: PERCENTILES };
export const RUN = { title: "Run time", times: true, series: PERCENTILES };

/**
 * Makes charts that load themselves and stay up to date.
 * @param {Record<string, string>} scope A queue or a kind; empty for all.
 * @param {Record<string, import("./chart.js").ChartOptions>} wanted By metric.
 * @param {AbortSignal} signal
 */
export function historyCharts(scope, wanted, signal) {
  const charts = Object.entries(wanted).map(([metric, options]) => ({ metric, drawn: chart(options) }));
  let span = /** @type {keyof typeof SPANS} */ (stored("holdfast.span") ?? "1 h");
  if (!(span in SPANS)) span = "1 h";
  let loadedAt = -Infinity;
  const buttons = Object.keys(SPANS).map((name) => el("button", { type: "button", class: "chip", "data-span": name, on: { click: () => choose(name) } }, name));
  const node = el("section", { "aria-label": "History" }, el("div", { class: "chips" }, ...buttons), el("div", { class: charts.length % 2 ? "columns" : "columns pairs" }, ...charts.map((one) => one.drawn.node)));

  /** @param {string} name */
  function choose(name) {
    span = /** @type {keyof typeof SPANS} */ (name);
    store("holdfast.span", name);
    load();
  }

  async function load() {
    loadedAt = performance.now();
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.span === span));
    const from = new Date(now() - SPANS[span]).toISOString();
    await Promise.all(charts.map(async ({ metric, drawn }) => {
      try {
        drawn.update(await get(withQuery("/v1/history", { metric, from, ...scope }), signal));
      } catch {
        // The page says that the server cannot be reached; the chart keeps what it has.
      }
    }));
  }

  load();
  const stop = everySecond(() => performance.now() - loadedAt > EVERY_MS && load());
  return {
    node,
    leave() {
      stop();
      for (const one of charts) one.drawn.leave();
    },
  };
}
