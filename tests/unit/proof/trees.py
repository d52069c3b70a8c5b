"""The tree as RFC 9162 defines it, word for word, the published vectors, and the leaf of an event."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from holdfast.core.model import EventRecord
from holdfast.proof.leaves import event_leaf
from holdfast.proof.merkle import Span, root_of

LEAVES = [
    bytes.fromhex(leaf)
    for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""The roots of the first n leaves."""
INCLUSIONS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def unhex(found: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in found]


def numbered(count: int) -> list[bytes]:
    """This many different leaf hashes."""
    return [sha256(b"leaf %d" % number).digest() for number in range(count)]


def power_below(size: int) -> int:
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def plain_root(hashes: Sequence[bytes]) -> bytes:
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = power_below(len(hashes))
    return sha256(b"\x01" + plain_root(hashes[:k]) + plain_root(hashes[k:])).digest()


def plain_path(index: int, hashes: Sequence[bytes]) -> list[bytes]:
    if len(hashes) == 1:
        return []
    k = power_below(len(hashes))
    if index < k:
        return [*plain_path(index, hashes[:k]), plain_root(hashes[k:])]
    return [*plain_path(index - k, hashes[k:]), plain_root(hashes[:k])]


def span_of(hashes: Sequence[bytes]) -> Span:
    """The spans of a tree whose leaf hashes are all in memory."""
    return lambda first, end: root_of(hashes[first:end])


def event_leaf_of(event: EventRecord, policy: str | None = None) -> bytes:
    """The leaf of `event`. `policy` is the stored text of its snapshot, which is encoded again where none is given."""
    if policy is None and event.policy is not None:
        policy = msgspec.json.encode(event.policy).decode()
    return event_leaf(
        (event.pos, event.job_id, event.rev, event.type, event.received_at, event.at, str(event.actor), event.attempt,
         event.from_status, event.to_status, event.reason, event.request_id, event.cause, event.payload, policy,
         event.correlation_id, event.trace_id, event.key_id, event.signature, event.statement)
    )  # fmt: skip
