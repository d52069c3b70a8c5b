/** Agents: what is each agent at? */

import { get } from "../api.js";
import { time } from "../clock.js";
import { link, path, withQuery } from "../dom.js";
import { count, number } from "../format.js";
import { listPage } from "../parts/listpage.js";
import { command, countLink, empty } from "../parts/states.js";

const page = listPage({
  title: "Agents",
  load: async ({ signal }) => (await get("/v1/agents", signal)).agents,
  answer: (agents) => `${count(agents.length, "session")} of agents; ${count(agents.filter((/** @type {any} */ one) => one.focus !== null).length, "session")} at a task.`,
  columns: () => [
    { name: "Agent", cell: (/** @type {any} */ agent) => agent.name, cut: true },
    { name: "Session", cell: (agent) => agent.session, cut: true },
    { name: "Task", cell: (agent) => (agent.focus === null ? "" : link(path("jobs", agent.focus), `#${agent.focus}`)) },
    { name: "Since", cell: (agent) => (agent.since ? time(agent.since) : ""), number: true },
    { name: "Last seen", cell: (agent) => time(agent.seen_at, { ago: true }), number: true },
    { name: "Holds", cell: (agent) => countLink(withQuery("/jobs", { owner: agent.name }), agent.holding), number: true },
    { name: "Task before", cell: (agent) => (agent.last === null ? "" : link(path("jobs", agent.last), `#${agent.last}`)) },
    { name: "Has read up to", cell: (agent) => number(agent.cursor), number: true },
  ],
  key: (agent) => `${agent.name}#${agent.session}`,
  empty: () => empty("No agent has worked here. An agent begins with:", command("holdfast resume")),
});
export const { title, load, watch, draw, update, leave } = page;
