/** Checks that a job's events are in the sealed log, without trusting the server. Pure. */

import { fromBase64, fromHex, isSame, leafHash, verifyInclusion } from "./merkle.js";
import { isSignedBy, parseHead, readNote } from "./note.js";

/** @typedef {{what: string, ok: boolean, detail?: string}} Step */

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

/**
 * Verifies an answer of the inclusion route.
 * @param {any} data
 * @param {string} publicKey The server key, 64 hex digits.
 * @returns {Promise<Step[]>}
 */
export async function verify(data, publicKey) {
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
      const other = difference(one.event, JSON.parse(new TextDecoder().decode(leaf)));
      const isIn = await verifyInclusion(await leafHash(leaf), one.index, head.size, one.proof.map(fromBase64), head.root);
      add(name, isIn && !other && one.event.job_id === data.job_id, [isIn ? "" : "its path does not lead to the root", other && `shown otherwise than sealed: ${other}`].filter(Boolean).join("; "));
    }
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
