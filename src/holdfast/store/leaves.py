"""From rows to leaves of the tree, many at a time."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from holdfast.core.proof.book import KeyChange
from holdfast.core.proof.leaves import VERSION, key_leaf, payload_sha256
from holdfast.core.proof.merkle import Hash, leaf_hash
from holdfast.store.base import default_correlation
from holdfast.store.seals import SettledRows

_encode = msgspec.json.Encoder().encode
POLICY, CORRELATION = 14, 15
"""Places in a row."""


class LeafPage(NamedTuple):
    """Hashes of leaves, and the position of each."""

    hashes: list[Hash]
    positions: list[int]


def leaf_page(found: SettledRows, policies: Mapping[int, str], ledger_id: str) -> LeafPage:
    """The leaves of these rows in the total order. `policies` has at least those that the rows refer to."""
    page = LeafPage(event_hashes(found.events, policies, ledger_id, found.epoch_us), [row[0] for row in found.events])
    return _with_keys(page, found.keys) if found.keys else page


def event_hashes(rows: Sequence[Sequence[Any]], policies: Mapping[int, str], ledger_id: str, epoch_us: int = 0) -> list[Hash]:
    """What `leaf_hash(event_leaf(…))` gives for each row, in one loop: it is gone through for everything that happens."""
    hashes: list[Hash] = []
    sha, encode = sha256, _encode
    push = hashes.append
    for (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
         policy_id, correlation_id, trace_id, key_id, signature, statement) in rows:  # fmt: skip
        if kind == "enqueued":
            correlation, trace = correlation_id or default_correlation(ledger_id, job_id), trace_id
        else:
            correlation = trace = None
        leaf = encode(
            ("event", VERSION, pos, job_id, rev, kind, received_at + epoch_us,
             received_at + epoch_us if at is None else at + epoch_us, actor, attempt, from_status, to_status, reason,
             request_id, cause, None if payload is None else payload_sha256(kind, payload),
             None if policy_id is None else policies[policy_id], correlation, trace, key_id,
             None if signature is None else signature.hex(), None if statement is None else sha(statement).hexdigest())
        )  # fmt: skip
        push(sha(b"\0" + leaf).digest())
    return hashes


def leaf_row(row: Sequence[Any], policies: Mapping[int, str], ledger_id: str) -> tuple[Any, ...]:
    """A stored row as `event_leaf` takes it: the policy's text for its number, and the correlation id that is in effect."""
    values = list(row)
    values[POLICY] = None if values[POLICY] is None else policies[values[POLICY]]
    values[CORRELATION] = values[CORRELATION] or default_correlation(ledger_id, values[1])
    return tuple(values)


def key_hash(change: KeyChange) -> Hash:
    return leaf_hash(key_leaf(*msgspec.structs.astuple(change)))


def _with_keys(page: LeafPage, keys: Sequence[KeyChange]) -> LeafPage:
    merged = sorted(
        [*zip(page.positions, page.hashes, strict=True), *((change.pos, key_hash(change)) for change in keys)],
    )
    return LeafPage([found for _, found in merged], [pos for pos, _ in merged])
