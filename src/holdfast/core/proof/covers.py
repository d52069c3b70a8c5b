"""Whether a statement is about an event: what of it does not fit, in one word."""

from hashlib import sha256

import msgspec

from holdfast.core import payloads
from holdfast.core.model import Event, EventType, StallReason
from holdfast.core.proof.leaves import payload_sha256, pruned_sha256
from holdfast.core.proof.stated import EMPTY_SHA256, Statement

E = EventType

COVERS: dict[EventType, frozenset[EventType]] = {kind: frozenset({kind}) for kind in EventType} | {
    E.HEARTBEAT: frozenset({E.HEARTBEAT, E.RESUMED}),
    E.SUCCEEDED: frozenset({E.SUCCEEDED, E.RESUMED}),
    E.FAILED: frozenset({E.FAILED, E.DEAD_LETTERED, E.STALLED, E.REQUEUED, E.CANCELLED, E.RESUMED}),
    E.REQUEUED: frozenset({E.STALLED, E.REQUEUED, E.CANCELLED, E.RESUMED}),
    E.CANCELLED: frozenset({E.CANCELLED, E.RESUMED}),
    E.CANCEL_REQUESTED: frozenset({E.CANCEL_REQUESTED, E.CANCELLED}),
}
"""What one command may cause, by the type its signer states: the same statement stands on every event of it. Where the ledger
signs, for the system or for who asked, it knows what was done and states each event by itself: such a statement has no
counter but a rev."""


def matches(statement: Statement, event: Event, ledger_id: str) -> str | None:
    """The first thing about `event` that `statement` does not say, or None where all of it fits."""
    exact = statement.counter is None
    covered = frozenset({statement.type}) if exact else COVERS[statement.type]
    own = exact or event.type in (statement.type, E.DEAD_LETTERED)
    fits = {
        "ledger": statement.ledger == ledger_id,
        "job": statement.job_id == event.job_id,
        "attempt": statement.attempt == event.attempt,
        "actor": statement.actor == event.actor,
        "type": event.type in covered,
        "at": statement.at == (event.received_at if event.at is None else event.at),
        "rev": statement.rev in (event.rev, None),
        "reason": statement.reason == event.reason or (not exact and _may_be_for(event, statement.reason if own else None)),
        "policy": _is_under(statement, event) or (not exact and statement.policy is None),
    }
    for what, fit in fits.items():
        if not fit:
            return what
    try:
        held = _holds(statement, event)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        held = False
    return None if held else "payload"


def _may_be_for(event: Event, stated: str | None) -> bool:
    """Whether the event may have its reason. `stated` is what the holder said of this event; it does not know all reasons."""
    match event.type:
        case E.RESUMED:
            return event.reason == stated
        case E.REQUEUED:
            return event.reason == (stated or (StallReason.RELEASED if payloads.is_release(event) else None))
        case _:
            return stated is None


def _payload_sha256(event: Event) -> str:
    return payload_sha256(event.type, event.payload) or EMPTY_SHA256


def _holds(statement: Statement, event: Event) -> bool:
    """Whether the event has what the signer gave. Errors are kept in other payloads than `failed`'s; times are the ledger's."""
    given = statement.payload_sha256
    if statement.shape == "seed":
        return _tells(statement, event)
    if statement.counter is None:
        return given == _payload_sha256(event)
    if event.type is E.STALLED and statement.type in (E.FAILED, E.STALLED):
        return given == _error_sha256(payloads.body_of(payloads.decode(payloads.Stalled, event.payload).error))
    if event.type is E.DEAD_LETTERED:
        last_error = bytes(payloads.decode(payloads.DeadLettered, event.payload).last_error)
        return given == _error_sha256(last_error) or (given == EMPTY_SHA256 and statement.type is E.DEAD_LETTERED)
    if event.type is E.FAILED:
        return given == _error_sha256(bytes(payloads.decode(payloads.Failed, event.payload).error))
    if event.type is E.CANCELLED and event.payload is not None and statement.type is not E.CANCELLED:
        return _tells_exit(statement, payloads.decode(payloads.Cancelled, event.payload))
    if event.type is not statement.type or event.type is E.REQUEUED:
        return True
    return given == _payload_sha256(event)


def _tells_exit(statement: Statement, body: payloads.Cancelled) -> bool:
    """Whether a job that was cancelled at its holder's exit has what a release or a failure of that holder said."""
    if statement.type is E.FAILED:
        return statement.payload_sha256 == _error_sha256(payloads.body_of(body.error))
    return body.comment == statement.reason


def _error_sha256(error: bytes | None) -> str:
    return EMPTY_SHA256 if error is None else sha256(b'{"error":' + error + b"}").hexdigest()


def _is_under(statement: Statement, event: Event) -> bool:
    """Whether the event's policy is the stated one; the seed states two numbers of it."""
    if statement.thresholds_ms is None or event.policy is None:
        return statement.policy == event.policy
    return statement.thresholds_ms == (event.policy.heartbeat_interval_ms, event.policy.stall_after_ms)


def _tells(statement: Statement, event: Event) -> bool:
    if event.type is E.STALLED:
        return payloads.decode(payloads.Stalled, event.payload).last_beat_at == statement.last_beat_at
    if event.type is not E.HEARTBEAT:
        return True
    told = payloads.Beat(stage=statement.stage, progress=statement.progress, assist_requested=statement.assist_requested)
    pruned = pruned_sha256(event.payload or b"")
    if pruned is not None:
        return pruned == sha256(told.encode()).hexdigest()
    return told == payloads.decode(payloads.Beat, event.payload)
