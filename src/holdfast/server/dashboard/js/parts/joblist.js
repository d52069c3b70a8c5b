/** Reads lists of jobs as the columns show them. */

import { get } from "../api.js";
import { withQuery } from "../dom.js";

/** Reads a page of jobs. Each job that waits says why. @param {Record<string, any>} query @param {AbortSignal} [signal] */
export async function readJobs(query, signal) {
  const page = await get(withQuery("/v1/jobs", { fields: "brief", why: true, ...query }), signal);
  for (const job of page.jobs) job.why = page.why[job.id]?.words ?? null;
  return page;
}
