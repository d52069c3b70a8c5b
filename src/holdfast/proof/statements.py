"""Statements: what a signer states about one job, the limits of its fields, and the bytes that are signed."""

import re
from hashlib import sha256
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.core import limits, vocabulary
from holdfast.core.model import Actor, EventRecord, EventType, Micros, Policy, Role
from holdfast.errors import LimitExceeded, ValidationError
from holdfast.proof.encoding import canonical, from_hex, from_iso

AT_MAX = limits.INTEGER_MAX
"""Micros up to the year 2255, the largest that every JSON reader can represent exactly."""
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
"""The event types that a worker states."""
_TYPES_WITH_REASON = frozenset({EventType.STALLED, EventType.FAILED, EventType.RESUMED, EventType.REQUEUED})
"""The event types for which a worker may give a reason."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a signed statement.

    `payload_sha256` is the hash, in hex, of the content that the signer gave. It is None in the form for robots, which has the
    fields of a beat instead.
    """

    ledger: str
    job_id: int
    attempt: int
    type: EventType
    actor: Actor
    at: Micros
    counter: int | None = None
    """Increases with every statement of one worker's incarnation. Statements of the system have a rev instead."""
    payload_sha256: str | None = None
    reason: str | None = None
    policy: Policy | None = None
    rev: int | None = None
    stage: str | None = None
    progress: int | None = None
    assist_requested: bool | None = None
    robot: str | None = None
    """The robot that a server's statement in the form for robots is about. A stall also has the two fields below."""
    last_beat_at: Micros | None = None
    thresholds_ms: tuple[int, int] | None = None
    shape: Literal["holdfast", "seed"] = "holdfast"


def check_statement(statement: Statement) -> Statement:
    """Return `statement` if all fields are within their limits and its signer may state them."""
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
    attempt_min, is_bound = 0, has_counter or has_rev
    match actor.role:
        case Role.WORKER:
            limits.check_name("incarnation", actor.incarnation)
            if statement.type not in HOLDER_TYPES:
                raise ValidationError(f"a worker does not state {statement.type.value}", field="type")
            _check_worker_fields(statement)
            attempt_min, is_bound = 1, has_counter
        case Role.SYSTEM | Role.CLIENT:
            is_bound = has_rev and not has_counter
    if not is_bound:
        raise ValidationError(
            "a worker's statement needs a counter, the system's and a client's a rev, an operator's one of them", field="counter"
        )
    limits.check_name("actor", actor.name)
    if Actor.parse(str(actor)) != actor:
        raise ValidationError("an incarnation has no #, and only a worker has one", field="actor")
    limits.check_integer("attempt", statement.attempt, attempt_min, limits.REV_MAX)


def _check_worker_fields(statement: Statement) -> None:
    """Raise if a worker states a rev or a policy, which it cannot know, or a reason for a type that has none."""
    fits = {
        "rev": statement.rev is None,
        "policy": statement.policy is None,
        "reason": statement.reason is None or statement.type in _TYPES_WITH_REASON,
    }
    for field, fit in fits.items():
        if not fit:
            raise ValidationError(f"a worker's {statement.type.value} does not state a {field}", field=field)


STALLED_NAME = vocabulary.event_name(vocabulary.Dialect.LIVENESS, EventType.STALLED)
"""Only a server states this in the form for robots."""
RESUMED_NAME = vocabulary.event_name(vocabulary.Dialect.LIVENESS, EventType.RESUMED)
"""A robot states this about itself in the form for robots, or a server about a robot."""
UNSET = msgspec.UNSET
_JOB_ID = re.compile("[1-9][0-9]{0,18}")
_Unset = msgspec.UnsetType


def parse_statement(value: dict[str, Any]) -> Statement:
    """Return the statement in an object of either shape. `check_statement` checks its limits."""
    if "v" in value:
        return _from_native(_convert(value, _NativeStatement))
    if value.get("type") == STALLED_NAME:
        return _from_server_stall(_convert(value, _ServerStall))
    actor = value.get("actor")
    if value.get("type") == RESUMED_NAME and isinstance(actor, dict) and actor.get("type") == "server":
        return _from_server_resume(_convert(value, _ServerResume))
    return _from_robot(_convert(value, _RobotStatement))


class _StatementRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _NativeStatement(_StatementRecord, frozen=True):
    v: Literal[1]
    ledger: str
    job: int | str
    attempt: int
    type: EventType
    actor: str
    at: int
    payload: str
    counter: int | _Unset = UNSET
    reason: str | _Unset = UNSET
    policy: Policy | _Unset = UNSET
    rev: int | _Unset = UNSET


class _RobotActor(_StatementRecord, frozen=True):
    type: Literal["robot"]
    id: str


class _RobotPayload(_StatementRecord, frozen=True):
    job_id: int | str
    robot_id: str
    t: str
    stage: str | _Unset = UNSET
    progress: int | _Unset = UNSET
    assist_requested: bool | _Unset = UNSET


class _RobotBinding(_StatementRecord, frozen=True):
    """Binds a beat to one ledger, one attempt and one boot of the robot. The counter makes it unique."""

    ledger: str
    attempt: int
    incarnation: str
    counter: int


class _RobotStatement(_StatementRecord, frozen=True):
    type: Literal["JOB_HEARTBEAT", "JOB_EXECUTION_RESUMED"]
    at: str
    actor: _RobotActor
    payload: _RobotPayload
    binding: _RobotBinding


class _ServerActor(_StatementRecord, frozen=True):
    type: Literal["server"]
    id: str


class _Thresholds(_StatementRecord, frozen=True):
    heartbeat_interval_ms: int
    stall_after_ms: int


class _ServerStallPayload(_StatementRecord, frozen=True):
    job_id: int | str
    robot_id: str
    detected_at: str
    reason: str
    last_heartbeat_at: str
    policy: _Thresholds


class _ServerBinding(_StatementRecord, frozen=True):
    """Binds a server's statement to one ledger, one attempt and one revision of the job."""

    ledger: str
    attempt: int
    rev: int


class _ServerStall(_StatementRecord, frozen=True):
    type: Literal["JOB_EXECUTION_STALLED"]
    at: str
    actor: _ServerActor
    payload: _ServerStallPayload
    binding: _ServerBinding


class _ServerResumePayload(_StatementRecord, frozen=True):
    job_id: int | str
    robot_id: str
    t: str


class _ServerResume(_StatementRecord, frozen=True):
    type: Literal["JOB_EXECUTION_RESUMED"]
    at: str
    actor: _ServerActor
    payload: _ServerResumePayload
    binding: _ServerBinding


S = TypeVar("S", bound=_StatementRecord)
T = TypeVar("T")


def _convert(value: dict[str, Any], shape: type[S]) -> S:
    try:
        return msgspec.convert(value, type=shape)
    except msgspec.ValidationError as error:
        raise ValidationError(f"a statement of another shape: {error}", field="statement") from None


def _or_none(value: T | _Unset) -> T | None:
    return None if isinstance(value, _Unset) else value


def _from_native(found: _NativeStatement) -> Statement:
    return Statement(
        ledger=found.ledger, job_id=_job_id("job", found.job), attempt=found.attempt, type=found.type,
        actor=_actor(found.actor), at=found.at, counter=_or_none(found.counter), payload_sha256=found.payload,
        reason=_or_none(found.reason), policy=_or_none(found.policy), rev=_or_none(found.rev),
    )  # fmt: skip


def _actor(text: str) -> Actor:
    try:
        return Actor.parse(text)
    except ValueError:
        raise ValidationError("the actor of a statement is a role and a name", field="actor") from None


def _from_robot(found: _RobotStatement) -> Statement:
    payload, binding = found.payload, found.binding
    stage, progress, assist = _or_none(payload.stage), _or_none(payload.progress), _or_none(payload.assist_requested)
    kind = vocabulary.event_type(found.type)
    if payload.t != found.at:
        raise ValidationError("a beat has one time: payload.t must equal at", field="t")
    if payload.robot_id != found.actor.id:
        raise ValidationError("a robot signs only for itself: payload.robotId must equal actor.id", field="robotId")
    if kind is not EventType.HEARTBEAT and (stage, progress, assist) != (None, None, None):
        raise ValidationError("only a beat has stage, progress and assistRequested", field="payload")
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", payload.job_id), attempt=binding.attempt, type=kind,
        actor=Actor(Role.WORKER, found.actor.id, binding.incarnation), at=from_iso("at", found.at), counter=binding.counter,
        stage=stage, progress=progress, assist_requested=assist, shape="seed",
    )  # fmt: skip


def _from_server_stall(found: _ServerStall) -> Statement:
    payload, binding = found.payload, found.binding
    if payload.detected_at != found.at:
        raise ValidationError("a stall has one time: payload.detectedAt must equal at", field="detectedAt")
    try:
        reason = vocabulary.stall_reason(payload.reason)
    except ValueError:
        raise ValidationError("the reason of a stall must be a stall reason", field="reason") from None
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", payload.job_id), attempt=binding.attempt, type=EventType.STALLED,
        actor=Actor(Role.SYSTEM, found.actor.id), at=from_iso("at", found.at), rev=binding.rev, reason=reason.value,
        robot=payload.robot_id, last_beat_at=from_iso("lastHeartbeatAt", payload.last_heartbeat_at),
        thresholds_ms=(payload.policy.heartbeat_interval_ms, payload.policy.stall_after_ms), shape="seed",
    )  # fmt: skip


def _from_server_resume(found: _ServerResume) -> Statement:
    payload, binding = found.payload, found.binding
    if payload.t != found.at:
        raise ValidationError("a resume has one time: payload.t must equal at", field="t")
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", payload.job_id), attempt=binding.attempt, type=EventType.RESUMED,
        actor=Actor(Role.SYSTEM, found.actor.id), at=from_iso("at", found.at), rev=binding.rev, robot=payload.robot_id,
        shape="seed",
    )  # fmt: skip


def _job_id(field: str, given: int | str) -> int:
    """Return a job's id, given as a number or as a string of digits."""
    if isinstance(given, int):
        return given
    if not _JOB_ID.fullmatch(given):
        raise ValidationError(f"{field} must be a job's id: a number, or a string of digits", field=field)
    return int(given)


STATEMENT_DOMAIN = b"holdfast event v1\n"
"""The prefix of every signed statement, so that no other signature can be used for an event."""
STATEMENT_BYTES_MAX = 8_192


def statement_message(statement: bytes) -> bytes:
    """Return the bytes that are signed for a statement."""
    return STATEMENT_DOMAIN + statement


def encode_ledger_statement(ledger_id: str, event: EventRecord) -> bytes:
    """Return the ledger's own statement about an event, which it signs for the system or for the event's actor."""
    return encode_statement(
        Statement(
            ledger=ledger_id, job_id=event.job_id, attempt=event.attempt, type=event.type, actor=event.actor,
            at=event.received_at if event.at is None else event.at, payload_sha256=sha256(event.payload or b"").hexdigest(),
            reason=event.reason, policy=event.policy, rev=event.rev,
        )
    )  # fmt: skip


def encode_statement(statement: Statement) -> bytes:
    """Return `statement` in Holdfast's own shape."""
    check_statement(statement)
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


def read_statement(body: bytes) -> Statement:
    """Return the statement in `body`, in either shape. Raise if a field is unknown or out of bounds, or not canonical."""
    if len(body) > STATEMENT_BYTES_MAX:
        limit = STATEMENT_BYTES_MAX
        raise LimitExceeded(f"a statement has at most {limit} bytes", field="statement", actual=len(body), limit=limit)
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise ValidationError("a statement must be JSON", field="statement") from None
    if not isinstance(value, dict) or canonical(value) != body:
        raise ValidationError("a statement must be one object in its canonical form (RFC 8785)", field="statement")
    return check_statement(parse_statement(value))
