/** The jobs around a job, in layers from left to right. */

import { el, svg } from "../dom.js";
import { count } from "../format.js";
import { glyph, word } from "../status.js";

const NODE = { width: 168, height: 26, across: 56, down: 8 };
const LAYER_MAX = 40;

/** @param {any} data The answer of the graph route. @param {number} self */
export function graph(data, self) {
  /** @type {Map<number, any[]>} */
  const layers = new Map();
  for (const node of data.nodes) layers.set(node.level, [...(layers.get(node.level) ?? []), node]);
  const levels = [...layers.keys()].sort((a, b) => a - b);
  const tallest = Math.min(LAYER_MAX, Math.max(...[...layers.values()].map((nodes) => nodes.length)));
  const height = tallest * (NODE.height + NODE.down) + NODE.down;
  const width = levels.length * (NODE.width + NODE.across) - NODE.across + 4;
  /** @type {Map<number, {x: number, y: number}>} */
  const places = new Map();
  let hidden = data.cut;
  levels.forEach((level, n) => {
    const nodes = layers.get(level) ?? [];
    const shown = nodes.slice(0, LAYER_MAX);
    hidden += nodes.length - shown.length;
    const top = (height - shown.length * (NODE.height + NODE.down)) / 2;
    shown.forEach((node, row) => places.set(node.job_id, { x: 2 + n * (NODE.width + NODE.across), y: top + row * (NODE.height + NODE.down) + NODE.down / 2 }));
  });
  const edges = data.edges.flatMap((/** @type {any} */ edge) => {
    const from = places.get(edge.from);
    const to = places.get(edge.to);
    if (!from || !to) return [];
    const [x, y, toX, toY] = [from.x + NODE.width, from.y + NODE.height / 2, to.x, to.y + NODE.height / 2];
    return [svg("path", { class: "edge", d: `M${x} ${y}C${x + 28} ${y} ${toX - 28} ${toY} ${toX} ${toY}` })];
  });
  const nodes = data.nodes.flatMap((/** @type {any} */ node) => {
    const place = places.get(node.job_id);
    if (!place) return [];
    const sign = glyph(node.status);
    for (const [name, value] of Object.entries({ x: 8, y: 7, width: 12, height: 12 })) sign.setAttribute(name, String(value));
    const name = `#${node.job_id} ${node.kind}`;
    const link = svg("a", { href: `/jobs/${node.job_id}`, "aria-label": `${name}, ${word(node.status)}` }, svg("rect", { class: "node", width: NODE.width, height: NODE.height, rx: 4 }), sign, svg("text", { x: 26, y: 17 }, name.length > 20 ? `${name.slice(0, 19)}…` : name));
    return [svg("g", { class: node.job_id === self ? "self" : null, transform: `translate(${place.x} ${place.y})` }, link)];
  });
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Jobs that wait for each other" }, ...edges, ...nodes);
  return el("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Dependencies" }, picture, hidden ? el("p", { class: "muted" }, `${count(hidden, "job")} more`) : null);
}
