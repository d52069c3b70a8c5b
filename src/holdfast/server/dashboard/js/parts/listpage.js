/** Pages that are one list: a title, an answer, a table, and what to do if it is empty. */

import { el, setText } from "../dom.js";
import { head } from "./states.js";
import { table } from "./table.js";

/**
 * Makes the functions of a page.
 * @template T
 * @param {object} options
 * @param {string} options.title
 * @param {(address: import("../router.js").Address) => Promise<T[]>} options.load
 * @param {(rows: T[]) => string} options.answer
 * @param {(reload: () => Promise<void>) => import("./table.js").Column<T>[]} options.columns
 * @param {(row: T) => string | number} options.key
 * @param {() => Node} options.empty
 * @param {(reload: () => Promise<void>) => import("../dom.js").Child[]} [options.actions]
 * @param {boolean} [options.polls] Whether no event says that the list has changed.
 */
export function listPage(options) {
  /** @type {any} */
  let view = null;
  /** @param {T[]} rows */
  function update(rows) {
    if (!view) return;
    setText(view.answer, options.answer(rows));
    view.list.node.hidden = view.answer.hidden = rows.length === 0;
    view.none.hidden = rows.length > 0;
    view.list.update(rows);
  }
  return {
    title: () => options.title,
    load: options.load,
    watch: () => (options.polls ? null : {}),
    /** @param {HTMLElement} root @param {T[]} rows @param {import("../router.js").Address} address */
    draw(root, rows, { reload }) {
      view = { list: table(options.title, options.columns(reload), options.key), answer: el("p", { class: "answer" }), none: options.empty() };
      root.append(head(options.title, ...(options.actions?.(reload) ?? [])), view.answer, view.none, view.list.node);
      update(rows);
    },
    update,
    leave: () => void (view = null),
  };
}
