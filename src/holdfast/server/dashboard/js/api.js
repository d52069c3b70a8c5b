/** Requests to the server, and its errors. */

import { noteOwnAction } from "./parts/steady.js";

/** A number whose text would change if it was printed again, such as 1.10 or 12345678901234567890. */
export class ExactNumber {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }

  valueOf() {
    return Number(this.source);
  }

  toString() {
    return this.source;
  }
}

/** A refusal of the server, or of the network. */
export class Problem extends Error {
  /** @param {any} document @param {number} status @param {string | null} requestId */
  constructor(document, status, requestId) {
    super(document.detail || document.title || `The server answered ${status}.`);
    this.code = /** @type {string} */ (document.code ?? "unknown");
    this.action = /** @type {string} */ (document.action ?? "");
    this.context = document.context ?? {};
    this.status = status;
    this.requestId = requestId;
  }
}

/**
 * Parses JSON. Numbers keep their source text where the browser can tell it.
 * @param {string} text
 */
export function parse(text) {
  /** @type {any} */
  const reviver = (/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? new ExactNumber(context.source) : value;
  return JSON.parse(text, reviver);
}

/** @type {Set<(problem: Problem) => void>} */
const refusals = new Set();
/** @type {Set<(version: string) => void>} */
const versions = new Set();
let version = "";

/** Calls a function for every request that was refused for lack of a session. @param {(problem: Problem) => void} listener */
export function onUnauthenticated(listener) {
  refusals.add(listener);
}

/** Calls a function when the server has become another version. @param {(version: string) => void} listener */
export function onNewVersion(listener) {
  versions.add(listener);
}

/** A request that is not over by then is given up. */
const ANSWER_WITHIN_MS = 45_000;

/** Sends a request and reads the whole answer. @param {string} path @param {RequestInit} init */
async function exchange(path, init) {
  const late = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, late]) : late;
  try {
    const response = await fetch(path, { ...init, signal, credentials: "same-origin", redirect: "error", cache: "no-store" });
    return { response, text: await response.text() };
  } catch (error) {
    if (init.signal?.aborted) throw error;
    const detail = late.aborted ? `The server did not answer within ${ANSWER_WITHIN_MS / 1000} s.` : "The server cannot be reached.";
    const action = "Check that `holdfast serve` is running. The page tries again by itself.";
    throw new Problem({ code: "unreachable", detail, action }, 0, null);
  }
}

/** @param {string} path @param {RequestInit} init */
async function request(path, init) {
  const { response, text } = await exchange(path, init);
  const given = response.headers.get("Holdfast-Version") ?? "";
  if (version && given && given !== version) for (const listener of versions) listener(given);
  version = given || version;
  if (response.ok) return text ? parse(text) : null;
  const problem = refused(response, text);
  if (response.status === 401) for (const listener of refusals) listener(problem);
  throw problem;
}

/** @param {Response} response @param {string} text */
function refused(response, text) {
  let document = {};
  try {
    document = JSON.parse(text);
  } catch {
    document = { code: "unavailable", detail: `Something between this page and the server answered ${response.status}.` };
  }
  return new Problem(document, response.status, response.headers.get("X-Request-Id"));
}

/**
 * Reads from the server.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return request(path, { signal });
}

/** Reads, and returns a fallback if the server has no such route or thing. @param {string} path @param {AbortSignal} [signal] @param {any} [fallback] */
export async function getIfThere(path, signal, fallback = null) {
  try {
    return await get(path, signal);
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 403)) return fallback;
    throw error;
  }
}

const REPEATS_MAX = 3;

/**
 * Changes something. A lost answer is asked for again with the same key, so that nothing happens twice.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {{rev?: number, key?: string}} [options]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { "Holdfast-Request": "1", "Idempotency-Key": options.key ?? crypto.randomUUID() };
  if (options.rev !== undefined) headers["If-Match"] = `"${options.rev}"`;
  if (method !== "DELETE") headers["Content-Type"] = "application/json";
  const init = { method, headers, body: method === "DELETE" ? undefined : JSON.stringify(body ?? {}) };
  for (let n = 1; ; n++) {
    try {
      const answer = await request(path, init);
      noteOwnAction();
      return answer;
    } catch (error) {
      const isLost = error instanceof Problem && (error.status === 0 || error.status === 503 || error.status === 429);
      if (!isLost || n >= REPEATS_MAX) throw error;
      await new Promise((done) => setTimeout(done, 300 * 2 ** n));
    }
  }
}

/** @param {string} path @param {any} [body] @param {{rev?: number, key?: string}} [options] */
export function post(path, body, options) {
  return send("POST", path, body, options);
}
