/** Limits: how many jobs may run at once or start in a time? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { link, path } from "../dom.js";
import { count, number, rate } from "../format.js";
import { removeButton, setButton } from "../parts/limit.js";
import { listPage } from "../parts/listpage.js";
import { command, empty } from "../parts/states.js";

const page = listPage({
  title: "Limits",
  polls: true,
  load: async ({ signal }) => (await get("/v1/limits", signal)).limits,
  answer: (limits) => `${count(limits.length, "limit")} over all workers. A job draws on the limits that it names.`,
  actions: (reload) => [setButton("", reload)],
  columns: (reload) => [
    { name: "Limit", cell: (/** @type {any} */ one) => link(path("limits", one.name), one.name), cut: true },
    { name: "At once", cell: (one) => number(one.concurrent), number: true },
    { name: "Rate", cell: (one) => rate(one.rate), number: true },
    { name: "Burst", cell: (one) => number(one.burst), number: true },
    { name: "For each", cell: (one) => one.by ?? "", cut: true },
    { name: "Set", cell: (one) => [time(one.updated_at, { ago: true }), ` by ${one.updated_by}`], cut: true },
    { name: "", cell: (one) => [setButton(one.name, reload), " ", removeButton(one.name, reload)] },
  ],
  key: (one) => one.name,
  empty: () => empty(
    "There are no limits. A limit holds over all workers: how many units jobs hold at once, or start in a time.",
    command("holdfast limit set openai --concurrent 20 --rate 600/1m --by args.tenant"),
    command(`holdfast job enqueue ask --queue chat --args '{"tenant": "acme"}' --limit openai=3`),
  ),
});
export const { title, load, watch, draw, update, leave } = page;
