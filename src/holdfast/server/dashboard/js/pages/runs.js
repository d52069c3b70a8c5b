/** Supervised runs. */

import { get } from "../api.js";
import { time } from "../clock.js";
import { el, link, path } from "../dom.js";
import { count, number } from "../format.js";
import { sendButton } from "../parts/confirm.js";
import { listPage } from "../parts/listpage.js";
import { command, empty } from "../parts/states.js";
import { glyph, word } from "../status.js";

/** @param {any} run */
function state(run) {
  if (run.needs_reset) return el("span", null, glyph("failed"), `given up: ${word(run.terminal_reason ?? "")}`);
  return run.terminal_reason ? `over: ${word(run.terminal_reason)}` : el("span", null, glyph("running"), "running");
}

const page = listPage({
  title: "Runs",
  polls: true,
  load: async ({ signal }) => (await get("/v1/runs", signal)).runs,
  answer: (runs) => `${count(runs.length, "supervised run")}; ${number(runs.filter((/** @type {any} */ run) => run.needs_reset).length)} given up.`,
  columns: (reload) => [
    { name: "Run", cell: (/** @type {any} */ run) => run.name, cut: true },
    { name: "State", cell: state },
    { name: "Program", cell: (run) => run.program, cut: true },
    { name: "Restarts", cell: (run) => number(run.restarts), number: true },
    { name: "Exit code", cell: (run) => (run.exit_code === null ? "" : String(run.exit_code)), number: true },
    { name: "Job", cell: (run) => (run.job_id === null ? "" : link(path("jobs", run.job_id), `#${run.job_id}`)) },
    { name: "Changed", cell: (run) => time(run.updated_at, { ago: true }), number: true },
    { name: "", cell: (run) => (run.needs_reset ? sendButton({ verb: "reset_run", label: "Reset", question: `Let ${run.name} start again?`, effect: "Its restarts are counted anew.", path: path("v1", "runs", run.name, "reset"), done: `${run.name} may start again.`, reload }) : null) },
  ],
  key: (run) => run.name,
  empty: () => empty("Nothing is supervised. A program is supervised with:", command("holdfast supervise --name arm-7 -- ./program")),
});
export const { title, load, watch, draw, update, leave } = page;
