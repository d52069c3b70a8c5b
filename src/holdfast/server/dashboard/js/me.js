/** Who uses the page, and what that person may do. */

import { get } from "./api.js";

/** @typedef {{name: string, role: string, queues: string[], can: string[], expires_at: string | null}} Me */
/** @type {Me | null} */
let me = null;

/** @returns {Promise<Me>} */
export async function loadMe() {
  me = await get("/v1/me");
  return /** @type {Me} */ (me);
}

export function who() {
  return me;
}

/** Whether the person may use all queues. Limits and the jobs of groups are not of one queue. */
export function hasAllQueues() {
  return me !== null && me.queues.includes("*");
}

/** Whether the person may use a verb. What may not be used is not drawn. @param {string} verb */
export function can(verb) {
  return me !== null && me.can.includes(verb);
}
