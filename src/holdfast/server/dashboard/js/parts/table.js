/** Tables whose rows change in place. */

import { el, flash, keyed, replace } from "../dom.js";
import { number } from "../format.js";
import { isHeld } from "./steady.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: T) => import("../dom.js").Child} cell
 * @property {boolean} [number] Whether it has numbers, which stand at the right.
 * @property {boolean} [cut] Whether a long text is cut.
 * @property {boolean} [calm] Whether its changes are not marked.
 * @property {boolean} [check] Whether it has check boxes.
 * @property {Node} [heading] Stands in the head instead of the name.
 */

/**
 * Makes a table. While a person points at it, its rows stay and change in place: others wait behind a button.
 * @template T
 * @param {string} label
 * @param {Column<T>[]} columns
 * @param {(row: T) => string | number} key
 * @param {object} [options]
 * @param {() => boolean} [options.holds] Whether the rows stay for another reason.
 * @param {(rows: T[]) => void} [options.shown] Is called with the rows that are shown.
 * @param {(n: number) => string} [options.waiting] The text of the button for so many new rows.
 */
export function table(label, columns, key, options = {}) {
  const heads = columns.map((column) =>
    el("th", { scope: "col", class: classOf(column) }, column.heading ?? (column.name || el("span", { class: "unseen" }, "Actions"))),
  );
  const body = el("tbody", null);
  const whole = el("table", { "aria-label": label }, el("thead", null, el("tr", null, ...heads)), body);
  const more = el("button", { type: "button", class: "new-rows", "data-calm": true, on: { click: () => update(latest, true) } });
  const box = el("div", { class: "box cards", role: "region", tabindex: "0", "aria-label": label }, whole);
  const node = el("div", { class: "held-box" }, box);
  let isFirst = true;
  /** @type {T[]} */
  let latest = [];
  /** @type {T[]} */
  let shown = [];

  /** @param {T} row */
  function make(row) {
    const cells = columns.map((column) => {
      const labelled = column.check || !column.name ? null : column.name;
      const cell = el("td", { class: classOf(column), "data-label": labelled }, column.cell(row));
      if (column.cut) cell.title = cell.textContent ?? "";
      return cell;
    });
    const made = el("tr", null, ...cells);
    if (!isFirst) flash(made);
    return made;
  }

  /** @param {HTMLTableRowElement} made @param {T} row */
  function change(made, row) {
    columns.forEach((column, n) => {
      const cell = made.cells[n];
      if (column.check || !replace(cell, column.cell(row))) return;
      if (column.cut) cell.title = cell.textContent ?? "";
      if (!column.calm) flash(cell);
    });
  }

  /** Brings the rows in line with a list. @param {T[]} rows @param {boolean} [all] Also the rows that would wait. */
  function update(rows, all = false) {
    latest = rows;
    const holds = !all && shown.length > 0 && (isHeld(node) || (options.holds?.() ?? false));
    const given = new Map(rows.map((row) => [key(row), row]));
    keepWidths(holds);
    shown = holds ? shown.map((row) => given.get(key(row)) ?? row) : rows;
    keyed(body, shown, key, make, change);
    isFirst = false;
    const here = new Set(shown.map(key));
    const fresh = rows.filter((row) => !here.has(key(row))).length;
    const isOther = holds && (fresh > 0 || shown.length !== rows.length || shown.some((row, n) => key(row) !== key(rows[n])));
    if (isOther) node.append(more);
    else more.remove();
    more.textContent = !fresh ? "Rows have changed – show" : (options.waiting ?? rowsWaiting)(fresh);
    options.shown?.(shown);
  }

  /** Rows that change in place do not move the columns. @param {boolean} isKept */
  function keepWidths(isKept) {
    const isFixed = whole.style.tableLayout === "fixed";
    if (isKept === isFixed) return;
    const widths = heads.map((one) => one.offsetWidth);
    heads.forEach((one, n) => one.style.setProperty("width", isKept ? `${widths[n]}px` : ""));
    whole.style.setProperty("table-layout", isKept ? "fixed" : "");
  }

  const release = () => more.isConnected && setTimeout(() => !isHeld(node) && !options.holds?.() && update(latest), 0);
  node.addEventListener("pointerleave", release);
  node.addEventListener("focusout", release);
  return { node, update };
}

/** @param {number} n */
function rowsWaiting(n) {
  return n === 1 ? "1 new row – show" : `${number(n)} new rows – show`;
}

/** @param {Column<any>} column */
function classOf(column) {
  return [column.number && "number", column.cut && "cut", column.check && "check", !column.name && "actions"].filter(Boolean).join(" ") || null;
}
