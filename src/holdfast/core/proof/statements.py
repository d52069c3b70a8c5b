"""Statements as the bytes that are signed: one spelling out, two shapes in."""

from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core.model import Actor, Event, EventType, Micros
from holdfast.core.proof.canonical import canonical
from holdfast.core.proof.shapes import shaped
from holdfast.core.proof.stated import EMPTY_SHA256, Statement, check
from holdfast.errors import LimitExceeded, ValidationError

DOMAIN = b"holdfast event v1\n"
"""Stands before every signed statement, so that no signature of anything else is one of an event."""
STATEMENT_BYTES_MAX = 8_192


def message(statement: bytes) -> bytes:
    """The bytes that a signature is over."""
    return DOMAIN + statement


def encode_holder(
    ledger_id: str,
    job_id: int,
    attempt: int,
    kind: EventType,
    worker: Actor,
    *,
    counter: int,
    at: Micros,
    content: bytes | None = None,
    reason: str | None = None,
) -> bytes:
    """A holder's statement, ready to be signed. `content` is what it gives with it: the payload of a beat or of a success; an
    error in the shape of `failed`'s payload, whatever will come of it; otherwise nothing."""
    digest = EMPTY_SHA256 if content is None else sha256(content).hexdigest()
    return encode(
        Statement(
            ledger=ledger_id, job_id=job_id, attempt=attempt, type=kind, actor=worker, at=at, counter=counter,
            payload_sha256=digest, reason=reason,
        )
    )  # fmt: skip


def encode_system(ledger_id: str, event: Event) -> bytes:
    """The ledger's own statement about an event that it makes, for the system or for who asked for it."""
    return encode(
        Statement(
            ledger=ledger_id, job_id=event.job_id, attempt=event.attempt, type=event.type, actor=event.actor,
            at=event.received_at if event.at is None else event.at, payload_sha256=sha256(event.payload or b"").hexdigest(),
            reason=event.reason, policy=event.policy, rev=event.rev,
        )
    )  # fmt: skip


def encode(statement: Statement) -> bytes:
    """`statement` in our shape."""
    check(statement)
    fields: dict[str, Any] = {
        "v": 1,
        "ledger": statement.ledger,
        "job": statement.job_id,
        "attempt": statement.attempt,
        "type": statement.type.value,
        "actor": str(statement.actor),
        "at": statement.at,
        "payload": statement.payload_sha256,
        "counter": statement.counter,
        "reason": statement.reason,
        "policy": None if statement.policy is None else msgspec.to_builtins(statement.policy),
        "rev": statement.rev,
    }
    return canonical({name: value for name, value in fields.items() if value is not None})


def read(body: bytes) -> Statement:
    """What `body` states, in either shape. Nothing in it is unknown, out of bounds, or spelled in a second way."""
    if len(body) > STATEMENT_BYTES_MAX:
        limit = STATEMENT_BYTES_MAX
        raise LimitExceeded(f"a statement has at most {limit} bytes", field="statement", actual=len(body), limit=limit)
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise ValidationError("a statement is JSON", field="statement") from None
    if not isinstance(value, dict) or canonical(value) != body:
        raise ValidationError("a statement is one object in its canonical form (RFC 8785)", field="statement")
    return check(shaped(value))
