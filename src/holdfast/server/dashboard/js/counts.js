/** The numbers in the navigation. They come from the overview. */

import { getIfThere } from "./api.js";
import { setText } from "./dom.js";

const EVERY_MS = 30_000;
let shownAt = -Infinity;

/** @param {{attention: number, dead_letters: number}} overview */
export function showCounts(overview) {
  shownAt = performance.now();
  for (const [id, n] of Object.entries({ "attention-count": overview.attention, "letters-count": overview.dead_letters })) {
    setText(/** @type {Element} */ (document.getElementById(id)), n || "");
  }
}

/** Reads the numbers, unless they were shown since a time or the page is hidden. */
export async function readCounts(since = performance.now() - EVERY_MS) {
  if (document.hidden || shownAt > since) return;
  shownAt = performance.now();
  const found = await getIfThere("/v1/overview").catch(() => null);
  if (found) showCounts(found);
}
