/** The Merkle tree of RFC 6962. Pure. */

/** @param {...Uint8Array} parts */
async function sha256(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", all));
}

/** @param {Uint8Array} leaf */
export function leafHash(leaf) {
  return sha256(new Uint8Array([0]), leaf);
}

/** @param {Uint8Array} left @param {Uint8Array} right */
function nodeHash(left, right) {
  return sha256(new Uint8Array([1]), left, right);
}

/** @param {Uint8Array} one @param {Uint8Array} other */
export function isSame(one, other) {
  return one.length === other.length && one.every((byte, n) => byte === other[n]);
}

/** The bytes of base64. @param {string} text */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** The bytes of hexadecimal digits. @param {string} text */
export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/**
 * Returns whether a proof shows that a hash is at `index` in the tree of `size` leaves with this root.
 * @param {Uint8Array} hash
 * @param {number} index
 * @param {number} size
 * @param {Uint8Array[]} proof
 * @param {Uint8Array} root
 */
export async function verifyInclusion(hash, index, size, proof, root) {
  if (!(index >= 0 && index < size)) return false;
  let place = index;
  let last = size - 1;
  let found = hash;
  for (const sibling of proof) {
    if (last === 0) return false;
    if (place % 2 === 1 || place === last) {
      found = await nodeHash(sibling, found);
      // Skip the levels at which the last node has no sibling.
      while (place && place % 2 === 0) [place, last] = [place / 2, Math.floor(last / 2)];
    } else {
      found = await nodeHash(found, sibling);
    }
    [place, last] = [Math.floor(place / 2), Math.floor(last / 2)];
  }
  return last === 0 && isSame(found, root);
}
