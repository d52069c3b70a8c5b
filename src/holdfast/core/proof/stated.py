"""One statement by one signer about one job, and the limits it keeps."""

from hashlib import sha256
from typing import Literal

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, EventType, Micros, Policy, Role
from holdfast.core.proof.spelling import from_hex
from holdfast.errors import ValidationError

AT_MAX = limits.INTEGER_MAX
"""Micros up to the year 2255: what every JSON reader can hold."""
EMPTY_SHA256 = sha256(b"").hexdigest()
HOLDER_TYPES = frozenset(
    {
        EventType.HEARTBEAT,
        EventType.SUCCEEDED,
        EventType.FAILED,
        EventType.STALLED,
        EventType.RESUMED,
        EventType.REQUEUED,
        EventType.CANCELLED,
    }
)
"""What a worker states; the rest of what it does is the ledger's to record."""
_REASONED = frozenset({EventType.STALLED, EventType.FAILED, EventType.RESUMED, EventType.REQUEUED})
"""Where a worker has a reason of its own."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a signer says. `payload_sha256` is of what it gave with it, in hex; None in the seed's shape, which has the fields of
    a beat instead."""

    ledger: str
    job_id: int
    attempt: int
    type: EventType
    actor: Actor
    at: Micros
    counter: int | None = None
    """Rises with every statement of one worker's incarnation. The system has none: its statements have a rev."""
    payload_sha256: str | None = None
    reason: str | None = None
    policy: Policy | None = None
    rev: int | None = None
    stage: str | None = None
    progress: int | None = None
    assist_requested: bool | None = None
    robot: str | None = None
    """Whom a server's statement in the seed's shape is about; with a stall come the last beat, and the interval and limit."""
    last_beat_at: Micros | None = None
    thresholds_ms: tuple[int, int] | None = None
    shape: Literal["holdfast", "seed"] = "holdfast"


def check(statement: Statement) -> Statement:
    """`statement`, if everything in it is within its limits and fits its signer."""
    limits.check_name("ledger", statement.ledger)
    limits.check_integer("job", statement.job_id, 1, limits.JOB_ID_MAX)
    limits.check_integer("at", statement.at, 0, AT_MAX)
    _check_signer(statement)
    if statement.counter is not None:
        limits.check_integer("counter", statement.counter, 0, limits.INTEGER_MAX)
    if statement.rev is not None:
        limits.check_integer("rev", statement.rev, 1, limits.REV_MAX)
    if statement.reason is not None:
        limits.check_text("reason", statement.reason, limits.REASON_BYTES_MAX)
    if statement.stage is not None:
        limits.check_name("stage", statement.stage)
    if statement.progress is not None:
        limits.check_integer("progress", statement.progress, 0, limits.INTEGER_MAX)
    if statement.shape == "holdfast":
        from_hex("payload", statement.payload_sha256 or "")
    return statement


def _check_signer(statement: Statement) -> None:
    actor, has_counter, has_rev = statement.actor, statement.counter is not None, statement.rev is not None
    attempt_min, traced = 0, has_counter or has_rev
    match actor.role:
        case Role.WORKER:
            limits.check_name("incarnation", actor.incarnation)
            if statement.type not in HOLDER_TYPES:
                raise ValidationError(f"a worker does not state {statement.type.value}", field="type")
            _check_unspoken(statement)
            attempt_min, traced = 1, has_counter
        case Role.SYSTEM | Role.CLIENT:
            traced = has_rev and not has_counter
    if not traced:
        raise ValidationError(
            "a worker's statement has a counter, the system's and a client's a rev, an operator's one of them", field="counter"
        )
    limits.check_name("actor", actor.name)
    if Actor.parse(str(actor)) != actor:
        raise ValidationError("an incarnation has no #, and only a worker has one", field="actor")
    limits.check_integer("attempt", statement.attempt, attempt_min, limits.REV_MAX)


def _check_unspoken(statement: Statement) -> None:
    """A worker knows neither the rev nor the policy of what comes of its statement, and gives a reason only where it has one."""
    unspoken = {
        "rev": statement.rev is None,
        "policy": statement.policy is None,
        "reason": statement.reason is None or statement.type in _REASONED,
    }
    for field, fit in unspoken.items():
        if not fit:
            raise ValidationError(f"a worker's {statement.type.value} does not state a {field}", field=field)
