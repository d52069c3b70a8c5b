/** Tables whose rows change in place. */

import { el, flash, keyed, replace } from "../dom.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: T) => import("../dom.js").Child} cell
 * @property {boolean} [number] Whether it has numbers, which stand at the right.
 * @property {boolean} [cut] Whether a long text is cut.
 * @property {boolean} [check] Whether it has check boxes.
 * @property {Node} [heading] Stands in the head instead of the name.
 */

/**
 * Makes a table.
 * @template T
 * @param {string} label
 * @param {Column<T>[]} columns
 * @param {(row: T) => string | number} key
 */
export function table(label, columns, key) {
  const heads = columns.map((column) =>
    el("th", { scope: "col", class: classOf(column) }, column.heading ?? (column.name || el("span", { class: "unseen" }, "Actions"))),
  );
  const body = el("tbody", null);
  const whole = el("table", { "aria-label": label }, el("thead", null, el("tr", null, ...heads)), body);
  const node = el("div", { class: "box cards", role: "region", tabindex: "0", "aria-label": label }, whole);
  let isFirst = true;

  /** @param {T} row */
  function make(row) {
    const cells = columns.map((column) => {
      const labelled = column.check || !column.name ? null : column.name;
      return el("td", { class: classOf(column), "data-label": labelled }, column.cell(row));
    });
    const made = el("tr", null, ...cells);
    if (!isFirst) flash(made);
    return made;
  }

  /** @param {HTMLTableRowElement} made @param {T} row */
  function change(made, row) {
    columns.forEach((column, n) => {
      if (!column.check && replace(made.cells[n], column.cell(row))) flash(made.cells[n]);
    });
  }

  return {
    node,
    /** Brings the rows in line with a list. @param {T[]} rows */
    update(rows) {
      keyed(body, rows, key, make, change);
      isFirst = false;
    },
  };
}

/** @param {Column<any>} column */
function classOf(column) {
  return [column.number && "number", column.cut && "cut", column.check && "check", !column.name && "actions"].filter(Boolean).join(" ") || null;
}
