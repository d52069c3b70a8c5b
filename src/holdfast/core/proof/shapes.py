"""The two shapes of a statement: ours says everything in micros and hashes; the seed's is what robots send, with ISO times and
the fields of a beat."""

import re
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.core import vocabulary
from holdfast.core.model import Actor, EventType, Policy, Role
from holdfast.core.proof.spelling import from_iso
from holdfast.core.proof.stated import Statement
from holdfast.errors import ValidationError

VERDICT = vocabulary.event_name(vocabulary.Dialect.LIVENESS, EventType.STALLED)
"""What only a server says in the seed's shape."""
RETURN = vocabulary.event_name(vocabulary.Dialect.LIVENESS, EventType.RESUMED)
"""What a robot says of itself in the seed's shape, or a server of a robot."""
UNSET = msgspec.UNSET
_JOB_ID = re.compile("[1-9][0-9]{0,18}")
_Unset = msgspec.UnsetType


def shaped(value: dict[str, Any]) -> Statement:
    """What an object in either shape states. Its limits are checked elsewhere."""
    if "v" in value:
        return _from_ours(_convert(value, _Ours))
    if value.get("type") == VERDICT:
        return _from_verdict(_convert(value, _Verdict))
    actor = value.get("actor")
    if value.get("type") == RETURN and isinstance(actor, dict) and actor.get("type") == "server":
        return _from_return(_convert(value, _Return))
    return _from_seed(_convert(value, _Seed))


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _Ours(_Shape, frozen=True):
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


class _Robot(_Shape, frozen=True):
    type: Literal["robot"]
    id: str


class _Told(_Shape, frozen=True):
    job_id: int | str
    robot_id: str
    t: str
    stage: str | _Unset = UNSET
    progress: int | _Unset = UNSET
    assist_requested: bool | _Unset = UNSET


class _Binding(_Shape, frozen=True):
    """What makes a beat one of this ledger, this attempt, this boot of the robot, and of no other moment."""

    ledger: str
    attempt: int
    incarnation: str
    counter: int


class _Seed(_Shape, frozen=True):
    type: Literal["JOB_HEARTBEAT", "JOB_EXECUTION_RESUMED"]
    at: str
    actor: _Robot
    payload: _Told
    binding: _Binding


class _Server(_Shape, frozen=True):
    type: Literal["server"]
    id: str


class _Thresholds(_Shape, frozen=True):
    heartbeat_interval_ms: int
    stall_after_ms: int


class _Silence(_Shape, frozen=True):
    job_id: int | str
    robot_id: str
    detected_at: str
    reason: str
    last_heartbeat_at: str
    policy: _Thresholds


class _Moment(_Shape, frozen=True):
    """What makes a server's statement one of this ledger, this attempt, and of the job as it was just then."""

    ledger: str
    attempt: int
    rev: int


class _Verdict(_Shape, frozen=True):
    type: Literal["JOB_EXECUTION_STALLED"]
    at: str
    actor: _Server
    payload: _Silence
    binding: _Moment


class _Heard(_Shape, frozen=True):
    job_id: int | str
    robot_id: str
    t: str


class _Return(_Shape, frozen=True):
    type: Literal["JOB_EXECUTION_RESUMED"]
    at: str
    actor: _Server
    payload: _Heard
    binding: _Moment


S = TypeVar("S", bound=_Shape)
T = TypeVar("T")


def _convert(value: dict[str, Any], shape: type[S]) -> S:
    try:
        return msgspec.convert(value, type=shape)
    except msgspec.ValidationError as error:
        raise ValidationError(f"a statement of another shape: {error}", field="statement") from None


def _given(value: T | _Unset) -> T | None:
    return None if isinstance(value, _Unset) else value


def _from_ours(found: _Ours) -> Statement:
    return Statement(
        ledger=found.ledger, job_id=_job_id("job", found.job), attempt=found.attempt, type=found.type,
        actor=_actor(found.actor), at=found.at, counter=_given(found.counter), payload_sha256=found.payload,
        reason=_given(found.reason), policy=_given(found.policy), rev=_given(found.rev),
    )  # fmt: skip


def _actor(text: str) -> Actor:
    try:
        return Actor.parse(text)
    except ValueError:
        raise ValidationError("the actor of a statement is a role and a name", field="actor") from None


def _from_seed(found: _Seed) -> Statement:
    told, binding = found.payload, found.binding
    stage, progress, assist = _given(told.stage), _given(told.progress), _given(told.assist_requested)
    kind = vocabulary.event_type(found.type)
    if told.t != found.at:
        raise ValidationError("a beat has one time: payload.t is not at", field="t")
    if told.robot_id != found.actor.id:
        raise ValidationError("a robot speaks for itself: payload.robotId is not actor.id", field="robotId")
    if kind is not EventType.HEARTBEAT and (stage, progress, assist) != (None, None, None):
        raise ValidationError("only a beat tells of stage, progress and wishes", field="payload")
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", told.job_id), attempt=binding.attempt, type=kind,
        actor=Actor(Role.WORKER, found.actor.id, binding.incarnation), at=from_iso("at", found.at), counter=binding.counter,
        stage=stage, progress=progress, assist_requested=assist, shape="seed",
    )  # fmt: skip


def _from_verdict(found: _Verdict) -> Statement:
    told, binding = found.payload, found.binding
    if told.detected_at != found.at:
        raise ValidationError("a verdict has one time: payload.detectedAt is not at", field="detectedAt")
    try:
        reason = vocabulary.stall_reason(told.reason)
    except ValueError:
        raise ValidationError("the reason of a verdict is one of a stall", field="reason") from None
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", told.job_id), attempt=binding.attempt, type=EventType.STALLED,
        actor=Actor(Role.SYSTEM, found.actor.id), at=from_iso("at", found.at), rev=binding.rev, reason=reason.value,
        robot=told.robot_id, last_beat_at=from_iso("lastHeartbeatAt", told.last_heartbeat_at),
        thresholds_ms=(told.policy.heartbeat_interval_ms, told.policy.stall_after_ms), shape="seed",
    )  # fmt: skip


def _from_return(found: _Return) -> Statement:
    told, binding = found.payload, found.binding
    if told.t != found.at:
        raise ValidationError("a return has one time: payload.t is not at", field="t")
    return Statement(
        ledger=binding.ledger, job_id=_job_id("jobId", told.job_id), attempt=binding.attempt, type=EventType.RESUMED,
        actor=Actor(Role.SYSTEM, found.actor.id), at=from_iso("at", found.at), rev=binding.rev, robot=told.robot_id, shape="seed",
    )  # fmt: skip


def _job_id(field: str, given: int | str) -> int:
    """A job's id, given as a number or as a string of digits."""
    if isinstance(given, int):
        return given
    if not _JOB_ID.fullmatch(given):
        raise ValidationError(f"{field} must be a job's id: a number, or a string of digits", field=field)
    return int(given)
