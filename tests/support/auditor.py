"""An independent auditor: checks heads and proofs by RFC 9162 and the C2SP note format, without code of Holdfast."""

import base64
import hashlib
from collections.abc import Sequence

from nacl.signing import VerifyKey


def leaf_hash(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + leaf).digest()


def root(hashes: Sequence[bytes]) -> bytes:
    """RFC 9162, 2.1.1, of leaves that are hashed already."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    return hashlib.sha256(b"\x01" + root(hashes[:split]) + root(hashes[split:])).digest()


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], wanted: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    if index >= size:
        return False
    fn, sn, r = index, size - 1, leaf_hash(leaf)
    for p in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = hashlib.sha256(b"\x01" + p + r).digest()
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = hashlib.sha256(b"\x01" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == wanted


def read_head(note: str, public: bytes) -> tuple[str, int, bytes]:
    """The origin, size and root of a checkpoint that this key has signed."""
    text, signature = note.split("\n\n")
    origin, size, encoded, rest = f"{text}\n".split("\n")
    dash, name, body = signature.rstrip("\n").split(" ")
    signed = base64.b64decode(body)
    assert (dash, name, rest) == ("—", origin, "")
    assert signed[:4] == hashlib.sha256(name.encode() + b"\n\x01" + public).digest()[:4]
    VerifyKey(public).verify(f"{text}\n".encode(), signed[4:])
    return origin, int(size), base64.b64decode(encoded)
