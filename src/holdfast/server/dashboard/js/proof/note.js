/** Signed notes: a text, a blank line, and a line for each signature. */

import { fromBase64, isSame } from "./merkle.js";

const DASH = "— ";
const KEY_HASH_BYTES = 4;
const ED25519 = 1;

/**
 * Returns the text and the signatures of a note. Throws if it has another form.
 * @param {string} note
 */
export function readNote(note) {
  const blank = note.lastIndexOf("\n\n");
  const lines = note.slice(blank + 2).split("\n");
  if (blank < 0 || lines.length < 2 || lines.pop() !== "") throw new Error("The head is not a signed note.");
  const signatures = lines.map((line) => {
    const [name, body] = line.slice(DASH.length).split(" ");
    if (!line.startsWith(DASH) || !body) throw new Error("A line of the note is not a signature.");
    const bytes = fromBase64(body);
    return { name, hash: bytes.slice(0, KEY_HASH_BYTES), signature: bytes.slice(KEY_HASH_BYTES) };
  });
  return { text: note.slice(0, blank + 1), signatures };
}

/** The origin, size and root of a head. @param {string} text */
export function parseHead(text) {
  const found = /^([^\n]+)\n(0|[1-9][0-9]*)\n([^\n]+)\n$/.exec(text);
  if (!found) throw new Error("A head is three lines: its origin, its size and its root.");
  return { origin: found[1], size: Number(found[2]), root: fromBase64(found[3]) };
}

/**
 * Returns whether a key has signed the note with this name.
 * @param {{text: string, signatures: {name: string, hash: Uint8Array, signature: Uint8Array}[]}} note
 * @param {string} name
 * @param {Uint8Array} key
 */
export async function isSignedBy(note, name, key) {
  const named = new TextEncoder().encode(`${name}\n`);
  const whole = new Uint8Array([...named, ED25519, ...key]);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", whole)).slice(0, KEY_HASH_BYTES);
  const mine = note.signatures.filter((one) => one.name === name && isSame(one.hash, hash));
  if (!mine.length) return false;
  const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  const message = new TextEncoder().encode(note.text);
  const fits = await Promise.all(mine.map((one) => crypto.subtle.verify({ name: "Ed25519" }, imported, one.signature, message)));
  return fits.every(Boolean);
}
