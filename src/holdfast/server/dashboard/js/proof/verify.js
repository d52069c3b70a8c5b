/** Checks that a job's events are in the sealed log, without trusting the server. Pure. */

import { parse } from "../api.js";
import { format } from "../parts/json.js";
import { fromBase64, fromHex, isSame, leafHash, verifyInclusion } from "./merkle.js";
import { isSignedBy, parseHead, readNote } from "./note.js";

/** @typedef {{what: string, ok: boolean, detail?: string, hidden?: boolean}} Step `hidden`: contents that could not be checked. */

/** The place of the payload's SHA-256 in a leaf. */
const PAYLOAD = 15;
const PRUNED = /^\{"pruned":"([0-9a-f]{64})"\}$/;
const REDACTED = '"[redacted]"';
/** What the page shows of a job, and the events that have it. */
const CONTENTS = /** @type {const} */ ([["args", "enqueued"], ["result", "succeeded"]]);

/** Microseconds since 1970. @param {string} text */
function micros(text) {
  const fraction = (/\.(\d+)/.exec(text)?.[1] ?? "").padEnd(6, "0").slice(0, 6);
  return Date.parse(`${text.slice(0, 19)}Z`) * 1000 + Number(fraction);
}

/** Returns what an event shows that its leaf does not have. Empty if they are the same. @param {any} event @param {any[]} leaf */
function difference(event, leaf) {
  const [kind, , pos, jobId, rev, type, receivedAt, at, actor, attempt, from, to, reason, requestId] = leaf;
  /** @type {[string, any, any][]} */
  const pairs = [
    ["kind", kind, "event"], ["pos", pos, event.pos], ["job_id", jobId, event.job_id], ["rev", rev, event.rev], ["type", type, event.type],
    ["received_at", receivedAt, micros(event.received_at)], ["at", at, micros(event.at)], ["actor", actor, event.actor], ["attempt", attempt, event.attempt],
    ["from_status", from, event.from_status], ["to_status", to, event.to_status], ["reason", reason, event.reason], ["request_id", requestId, event.request_id],
  ];
  return pairs.filter(([, one, other]) => one !== other).map(([name]) => name).join(", ");
}

/** @param {string} text */
async function sha256Hex(text) {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Compares a payload with the hash in the leaf. Returns what is wrong; empty if nothing is.
 * @param {any} one An event of the answer.
 * @param {any[]} leaf
 */
async function payloadFault(one, leaf) {
  const text = one.sealed_payload;
  const sealed = leaf[PAYLOAD];
  if (text === null || sealed === null) return text === sealed ? "" : "its contents are not those that were sealed";
  const pruned = one.event.type === "heartbeat" && PRUNED.exec(text)?.[1];
  return (pruned || (await sha256Hex(text))) === sealed ? "" : "its contents are not those that were sealed";
}

/**
 * Compares what the page shows of a job with the sealed payloads.
 * @param {any} data
 * @param {Record<string, any>} shown
 * @returns {Step[]}
 */
function contents(data, shown) {
  return CONTENTS.flatMap(([name, type]) => {
    const one = data.events.findLast((/** @type {any} */ found) => found.event.type === type);
    if (!one || !(name in shown) || one.sealed_payload === null || one.sealed_payload.includes(REDACTED)) return [];
    return [{ what: `What this page shows as ${name} is that of event ${one.event.id}`, ok: format(parse(one.sealed_payload)[name]) === format(shown[name]) }];
  });
}

/**
 * Verifies an answer of the inclusion route.
 * @param {any} data
 * @param {string} publicKey The server key, 64 hex digits.
 * @param {Record<string, any>} [shown] The args and the result as the page shows them.
 * @returns {Promise<Step[]>}
 */
export async function verify(data, publicKey, shown = {}) {
  /** @type {Step[]} */
  const steps = [];
  const add = (/** @type {string} */ what, /** @type {boolean} */ ok, /** @type {string} */ detail = "") => steps.push({ what, ok, detail });
  try {
    const note = readNote(data.head.note);
    const head = parseHead(note.text);
    add("The head names this ledger", head.origin === `holdfast/${data.ledger_id}`, head.origin);
    add("The head's size and root are those of the note", head.size === data.head.size && isSame(head.root, fromBase64(data.head.root)), `${head.size} leaves`);
    add("The note is signed by the key", await isSignedBy(note, head.origin, fromHex(publicKey)), publicKey.slice(0, 16));
    for (const one of data.events) {
      const name = `Event ${one.event.id} (${one.event.type})`;
      const leaf = fromBase64(one.leaf);
      const fields = JSON.parse(new TextDecoder().decode(leaf));
      const other = difference(one.event, fields);
      const isIn = await verifyInclusion(await leafHash(leaf), one.index, head.size, one.proof.map(fromBase64), head.root);
      const fault = await payloadFault(one, fields);
      const hidden = Boolean(fault) && one.sealed_payload?.includes(REDACTED);
      const faults = [isIn ? "" : "its leaf is not in the sealed log: the path does not lead to the root", other && `shown otherwise than sealed: ${other}`, hidden ? "" : fault];
      steps.push({ what: name, ok: isIn && !other && (hidden || !fault) && one.event.job_id === data.job_id, detail: faults.filter(Boolean).join("; "), hidden });
    }
    steps.push(...contents(data, shown));
  } catch (/** @type {any} */ error) {
    add("The answer can be read", false, String(error.message ?? error));
  }
  return steps;
}

/** Whether this browser can check Ed25519 signatures. */
export async function canVerify() {
  try {
    await crypto.subtle.importKey("raw", fromHex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"), { name: "Ed25519" }, false, ["verify"]);
    return true;
  } catch {
    return false;
  }
}
