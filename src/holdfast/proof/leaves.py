"""Leaves of the Merkle tree: the bytes of an event or of a key change that are hashed.

A leaf is a JSON array without objects, so the plain encoder writes it in its canonical form (RFC 8785).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core.model import EventType, Micros
from holdfast.core.payloads import pruned_sha256

LEAF_VERSION = 1
_encode = msgspec.json.Encoder().encode


def event_leaf(row: Sequence[Any]) -> bytes:
    """Return the leaf of an event. The columns of `row` are in the order in which they are unpacked below.

    `policy` is the stored JSON text of the snapshot. `correlation_id` is the effective one. Payload, signature and statement
    are bytes.
    """
    (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
     policy, correlation_id, trace_id, key_id, signature, statement) = row  # fmt: skip
    is_new = kind == EventType.ENQUEUED
    return _encode(
        ("event", LEAF_VERSION, pos, job_id, rev, kind, received_at, received_at if at is None else at, actor, attempt,
         from_status, to_status, reason,
         request_id, cause, payload_sha256(kind, payload), policy, correlation_id if is_new else None,
         trace_id if is_new else None, key_id, None if signature is None else signature.hex(),
         None if statement is None else sha256(statement).hexdigest())
    )  # fmt: skip


def key_leaf(
    pos: int, change: str, key_id: str, role: str, name: str, public: bytes, at: Micros, by: str, signer: str, signature: bytes
) -> bytes:
    """Return the leaf of a key change, including the key that signed it."""
    return _encode(("key", LEAF_VERSION, pos, change, key_id, role, name, public.hex(), at, by, signer, signature.hex()))


def payload_sha256(kind: str, payload: bytes | None) -> str | None:
    """Return the SHA-256 of an event's payload in hex, or None without a payload. A pruned beat still has its hash."""
    if payload is None:
        return None
    return (pruned_sha256(payload) if kind == EventType.HEARTBEAT else None) or sha256(payload).hexdigest()
