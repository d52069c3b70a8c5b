/** Help: keys, statuses, and where to read on. */

import { el } from "../dom.js";
import { keysAreOn, switchKeys } from "../keys.js";
import { command, facts, head } from "../parts/states.js";
import { pill, STATUSES } from "../status.js";

const KEYS = [
  ["?", "this page"], ["/", "find"], ["g then o j q k w a d e", "overview, jobs, queues, kinds, workers, attention, dead letters, events"], ["j k", "next or previous row"],
  ["Enter", "open the row"], ["x", "select the row; with Shift a range"], ["l", "pause or resume updates"], ["t", "times: relative, local, UTC"], ["v", "chart or timeline as a table"],
  ["[ ]", "first and next page"], ["Esc", "close"],
];
const MEANINGS = {
  queued: "waits for a worker, a time or other jobs", claimed: "a worker has it, and has not started", running: "a worker runs it and sends heartbeats", stalled: "its holder was silent for too long, or failed; it is queued again",
  succeeded: "done", failed: "ended with an error", cancelled: "ended by a request to cancel", dead_lettered: "given up; a person has to look at it",
};

export const title = () => "Help";
export const load = async () => null;

/** @param {HTMLElement} root */
export function draw(root) {
  const on = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", checked: keysAreOn(), on: { change: () => switchKeys(on.checked) } }));
  root.append(
    head("Help"),
    el("h2", null, "Keys"),
    el("label", { class: "check-line" }, on, "Use these keys"),
    facts(...KEYS.map(([keys, what]) => /** @type {[import("../dom.js").Child, string]} */ ([keys.split(" ").map((key) => (key === "then" ? " then " : [el("kbd", null, key), " "])), what]))),
    el("h2", null, "Statuses"),
    el("dl", { class: "facts" }, ...STATUSES.flatMap((status) => [el("dt", null, pill(status)), el("dd", null, MEANINGS[/** @type {keyof typeof MEANINGS} */ (status)])])),
    el("h2", null, "More"),
    el("p", null, el("a", { href: "/openapi.json", target: "_blank", rel: "noopener" }, "The HTTP API as an OpenAPI document")),
    command("holdfast --help"),
    command("holdfast doctor"),
  );
}
