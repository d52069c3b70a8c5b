"""Rows of a store as the lines of an export."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.model import Policy
from holdfast.core.proof.book import KeyChange
from holdfast.core.proof.exported import EventLine, KeyLine
from holdfast.core.proof.merkle import HASH_BYTES
from holdfast.core.proof.tiles import TILE_HASHES
from holdfast.store.base import default_correlation
from holdfast.store.seals import POSITION_BYTES, TileRow, unpacked

_policy: msgspec.json.Decoder[Policy] = msgspec.json.Decoder(Policy)


def event_line(row: Sequence[Any], ledger_id: str) -> EventLine:
    (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
     policy_id, correlation_id, trace_id, key_id, signature, statement) = row  # fmt: skip
    is_new = kind == "enqueued"
    return EventLine(
        pos, job_id, rev, kind, received_at, actor, attempt, to_status, from_status, at, reason, request_id, cause,
        _text(payload), policy_id, (correlation_id or default_correlation(ledger_id, job_id)) if is_new else None,
        trace_id if is_new else None, key_id, None if signature is None else signature.hex(), _text(statement),
    )  # fmt: skip


def read_policy(body: str) -> Policy | None:
    try:
        return _policy.decode(body)
    except (msgspec.MsgspecError, ValueError):
        return None


def _text(body: bytes | None) -> str | None:
    """What is no text was written by somebody else: it is told in a form that will not verify."""
    return None if body is None else body.decode("utf-8", "replace")


def key_line(change: KeyChange) -> KeyLine:
    return KeyLine(
        change.pos, change.change, change.key_id, change.role, change.name, change.public.hex(), change.at, change.by,
        change.signer, change.signature.hex(),
    )  # fmt: skip


def position(found: Sequence[Any] | KeyChange) -> int:
    return found.pos if isinstance(found, KeyChange) else int(found[0])


def merged(rows: Sequence[Sequence[Any]], keys: Sequence[KeyChange]) -> list[Sequence[Any] | KeyChange]:
    """In the total order."""
    found: list[Sequence[Any] | KeyChange] = [*rows, *keys]
    return sorted(found, key=position)


def by_position(tile: TileRow) -> dict[int, bytes]:
    """The hashes of a tile's leaves by their positions."""
    whole = len(tile.positions or b"") // POSITION_BYTES * POSITION_BYTES
    positions = unpacked((tile.positions or b"")[:whole])
    hashes = [tile.hashes[at : at + HASH_BYTES] for at in range(0, len(tile.hashes), HASH_BYTES)]
    return dict(zip(positions[:TILE_HASHES], hashes, strict=False))
