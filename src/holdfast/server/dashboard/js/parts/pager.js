/** Links between the pages of a list whose rows have an order. */

import { el, withQuery } from "../dom.js";

/**
 * Links to the first and to the next page.
 * @param {string} base
 * @param {Record<string, any>} query What both pages share.
 * @param {string | null} after After which row this page begins. Null on the first page.
 * @param {string | number | null | undefined} last The last row, if there may be more.
 */
export function pager(base, query, after, last) {
  const first = after && el("a", { href: withQuery(base, query), "data-page": "previous" }, "First page");
  const next = last && el("a", { href: withQuery(base, { ...query, after: last }), "data-page": "next" }, "Next page");
  return [first, first && next ? " · " : null, next];
}
