/** Sinks: how far have deliveries come? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, path } from "../dom.js";
import { argument, count, number } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { listPage } from "../parts/listpage.js";
import { empty } from "../parts/states.js";
import { glyph } from "../status.js";

/** @param {any} sink */
function state(sink) {
  if (sink.dead_at) return el("span", null, glyph("failed"), "given up, ", time(sink.dead_at));
  if (sink.failures) return el("span", null, glyph("stalled"), "fails, again in ", time(sink.retry_at, { until: true }));
  return el("span", null, glyph("well"), "well");
}

/** @param {any} sink @param {() => Promise<void>} reload */
function buttons(sink, reload) {
  const of = (/** @type {string} */ verb) => path("v1", "sinks", sink.name, verb);
  return [
    sink.failures || sink.dead_at ? sendButton({ verb: "skip_sink_event", label: "Skip the event", question: `Skip the event that ${sink.name} does not accept?`, effect: `${sink.name} never gets the event after position ${sink.pos}. ${sink.last_error ?? ""}`, command: `holdfast sink skip ${argument(sink.name)}`, path: of("skip"), done: "The event is skipped.", reload }) : null,
    sink.dead_at ? sendButton({ verb: "revive_sink", label: "Revive", path: of("revive"), done: `${sink.name} gets events again.`, reload }) : null,
    sendButton({ verb: "drop_sink", label: "Drop", question: `Drop ${sink.name}?`, effect: "Its position is forgotten. If it comes back, it begins anew.", command: `holdfast sink drop ${argument(sink.name)}`, method: "DELETE", path: path("v1", "sinks", sink.name), done: `${sink.name} is forgotten.`, reload }),
  ];
}

const page = listPage({
  title: "Sinks",
  polls: true,
  load: async ({ signal }) => (await get("/v1/sinks", signal)).sinks,
  answer: (sinks) => `${count(sinks.length, "sink")}; ${count(sinks.filter((/** @type {any} */ sink) => sink.dead_at).length, "sink")} given up.`,
  columns: (reload) => [
    { name: "Sink", cell: (/** @type {any} */ sink) => sink.name, cut: true },
    { name: "State", cell: state },
    { name: "Position", cell: (sink) => number(sink.pos), number: true },
    { name: "Behind", cell: (sink) => number(sink.behind), number: true },
    { name: "Failures", cell: (sink) => number(sink.failures), number: true },
    { name: "Last error", cell: (sink) => sink.last_error ?? "", cut: true },
    { name: "Changed", cell: (sink) => time(sink.updated_at, { ago: true }), number: true },
    { name: "", cell: (sink) => buttons(sink, reload) },
  ],
  key: (sink) => sink.name,
  empty: () => empty("There are no sinks. A sink is a program or an address that gets every event; it is named in [[server.sinks]] of holdfast.toml."),
});
export const { title, load, watch, draw, update, leave } = page;
