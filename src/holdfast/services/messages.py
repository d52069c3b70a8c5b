"""Turn events into messages for sinks: CloudEvents 1.0 as structured JSON. Pure functions."""

import re
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.explain.formatting import remedy
from holdfast.core.explain.model import Remedy
from holdfast.core.formatting import describe_event, is_retry
from holdfast.core.model import ESCALATING, EventRecord, EventType, Micros, Status
from holdfast.core.payloads import UNSET, EnqueuedPayload, StalledPayload, decode
from holdfast.core.text import iso_format
from holdfast.ledger import public
from holdfast.ledger.public import public_event, public_policy, to_datetime
from holdfast.store.outbox import JobOrigin
from holdfast.store.sealing import HeadRow

ASSIST_REQUESTED = "ASSIST_REQUESTED"
"""The reason of the first heartbeat that requests an operator's help."""
OPEN_FIELDS = frozenset(
    {"stage", "progress", "assist_requested", "available_at", "policy"}
    | {"holder", "incarnation", "last_beat_at", "lease_expires_at", "detected_at"}
)
"""Payload fields that a sink in a dialect always gets. They hold no args, results, errors or checkpoints."""
ADDED_FIELDS = ("message", "text", "queue", "kind", "tier", "silent_ms", "commands")
"""Fields of `StatusData` that an event in a dialect does not have by itself."""
_WITH_ERROR = frozenset({EventType.STALLED, EventType.FAILED, EventType.CANCELLED, EventType.DEAD_LETTERED})
_encode = msgspec.json.Encoder().encode


class Topic(StrEnum):
    JOB_STATUS_CHANGED = "JOB_STATUS_CHANGED"
    ESCALATION_NEEDED = "ESCALATION_NEEDED"
    TREE_HEAD = "TREE_HEAD"
    """A head of the sealed log. It is for sinks that get nothing else."""


RETRIED_TYPE = "dev.holdfast.job_retried.v1"
"""The type of the CloudEvent for a retry. Its `message` is JOB_STATUS_CHANGED like that of any other change of status."""
_CLASS_NAME = re.compile(r"[\w.]{1,200}")
"""The name of an exception class. Any other text may contain more than a name, and is left out."""
_SOURCES = {Topic.JOB_STATUS_CHANGED: "jobs", Topic.ESCALATION_NEEDED: "escalations"}


class StatusData(msgspec.Struct, frozen=True, rename={"from_status": "from", "to_status": "to"}):
    """The data of both messages. `payload` is set only for sinks with `include_payload`: it may hold args, results and errors.

    `text` describes the event in a sentence. It contains errors only for those sinks. For a retry, it contains the name of the
    error for all sinks.

    `holder` and the fields after it describe a stall: the worker, since when it is silent, its policy. A request for assistance
    has the first two of them. `commands` are set in an escalation: commands for the operator who is paged.
    """

    message: Topic
    job_id: int
    rev: int
    attempt: int
    from_status: Status | None
    to_status: Status
    type: EventType
    reason: str | None
    actor: str
    correlation_id: str
    trace_id: str | None
    queue: str | None
    kind: str | None
    tier: str | None
    position: int
    text: str
    holder: str | msgspec.UnsetType = UNSET
    incarnation: str | msgspec.UnsetType = UNSET
    last_beat_at: str | msgspec.UnsetType = UNSET
    detected_at: str | msgspec.UnsetType = UNSET
    silent_ms: int | msgspec.UnsetType = UNSET
    """The time from the last heartbeat to the detection."""
    policy: dict[str, Any] | msgspec.UnsetType | None = UNSET
    """The policy snapshot of the attempt, with `stall_after_ms`."""
    commands: list[Remedy] | msgspec.UnsetType = UNSET
    payload: msgspec.Raw | msgspec.UnsetType = UNSET


class HeadData(msgspec.Struct, frozen=True):
    """The data of a message about a head. `note` is what a key of the server has signed."""

    message: Topic
    size: int
    position: int
    root: str
    note: str


class CloudEvent(msgspec.Struct, frozen=True):
    """`source` and `id` together are unique. `id` is the event's id, and one event may give one message of each source.

    `data` is a dict if the sink's dialect is not Holdfast's own.
    """

    id: str
    source: str
    type: str
    subject: str
    time: str
    data: StatusData | HeadData | dict[str, Any]
    specversion: str = "1.0"
    datacontenttype: str = "application/json"


class Message(msgspec.Struct, frozen=True):
    """One message for a sink. `key` is unique among all messages of all ledgers, and stays the same when it is sent again.

    `data` has Holdfast's own names in every dialect.
    """

    key: str
    event: CloudEvent
    data: StatusData

    @property
    def body(self) -> bytes:
        return _encode(self.event)

    def as_dict(self) -> dict[str, Any]:
        """Return the CloudEvent as its JSON object."""
        document: dict[str, Any] = msgspec.json.decode(self.body)
        return document


class HeadMessage(Message, frozen=True):
    """A message about a head of the sealed log."""

    data: HeadData  # type: ignore[assignment]  # a sink of heads gets no other data


def head_message(head: HeadRow, ledger_id: str) -> HeadMessage:
    """Return the message of a head."""
    data = HeadData(Topic.TREE_HEAD, head.size, head.pos, bytes(head.root).hex(), head.note)
    event = CloudEvent(
        id=f"head-{head.size}",
        source=f"/holdfast/{ledger_id}/heads",
        type="dev.holdfast.tree_head.v1",
        subject=str(head.size),
        time=_rfc3339(head.at),
        data=data,
    )
    return HeadMessage(f"msg_{ledger_id}_head_{head.size}", event, data)


def topics(event: EventRecord) -> list[Topic]:
    """Return the topics of an event's messages, in the order in which they are sent."""
    changed = [Topic.JOB_STATUS_CHANGED] if event.from_status != event.to_status else []
    return [*changed, Topic.ESCALATION_NEEDED] if needs_escalation(event) else changed


def needs_escalation(event: EventRecord) -> bool:
    """Return whether the event is a stall in ESCALATING under a policy with operator coverage, or a request for assistance."""
    if event.type is EventType.STALLED:
        return event.reason in ESCALATING and event.policy is not None and event.policy.requires_operator_coverage
    return event.type is EventType.HEARTBEAT and event.reason == ASSIST_REQUESTED


def messages(
    event: EventRecord,
    ledger_id: str,
    origin: JobOrigin | None,
    *,
    include_payload: bool = False,
    dialect_data: dict[str, Any] | None = None,
) -> list[Message]:
    """Return all messages of an event. `origin` is None if the job is deleted; an `enqueued` event contains its own origin.

    `dialect_data` is the event in the sink's dialect, if that is not Holdfast's own.
    """
    return [
        _message(topic, event, ledger_id, origin or own_origin(event), include_payload, dialect_data) for topic in topics(event)
    ]


def own_origin(event: EventRecord) -> JobOrigin | None:
    """Return queue, kind and tier if the event itself contains them."""
    if event.type is not EventType.ENQUEUED:
        return None
    body = decode(EnqueuedPayload, event.payload)
    return JobOrigin(body.queue, body.kind, body.tier)


def _holder_fields(event: EventRecord) -> dict[str, Any]:
    """Return the message fields about the holder, for a stall or a request for assistance."""
    if event.type is EventType.HEARTBEAT:
        return {"holder": event.actor.name, "incarnation": event.actor.incarnation}
    if event.type is not EventType.STALLED:
        return {}
    body = decode(StalledPayload, event.payload)
    return {
        "holder": body.holder,
        "incarnation": body.incarnation,
        "last_beat_at": _rfc3339(body.last_beat_at),
        "detected_at": _rfc3339(body.detected_at),
        "silent_ms": max(0, body.detected_at - body.last_beat_at) // 1_000,
        "policy": None if event.policy is None else public_policy(event.policy),
    }


def _operator_commands(event: EventRecord) -> list[Remedy]:
    """Return the commands for an operator who is paged."""
    assist = [remedy("records that an operator helps", "job", "assist", event.job_id)] if event.reason == ASSIST_REQUESTED else []
    return [
        *assist,
        remedy("says what the job's status is, what happens next and what can be done", "explain", event.job_id),
        remedy("ends it; a holder is asked to stop", "job", "cancel", event.job_id),
    ]


def _message(
    topic: Topic,
    event: EventRecord,
    ledger_id: str,
    origin: JobOrigin | None,
    include_payload: bool,
    dialect_data: dict[str, Any] | None,
) -> Message:
    source = _SOURCES[topic]
    data = StatusData(
        message=topic,
        job_id=event.job_id,
        rev=event.rev,
        attempt=event.attempt,
        from_status=event.from_status,
        to_status=event.to_status,
        type=event.type,
        reason=event.reason,
        actor=str(event.actor),
        correlation_id=event.correlation_id,
        trace_id=event.trace_id,
        queue=None if origin is None else origin.queue,
        kind=None if origin is None else origin.kind,
        tier=None if origin is None else origin.tier,
        position=event.pos,
        text=_text(event, origin, include_payload),
        **_holder_fields(event),
        commands=_operator_commands(event) if topic is Topic.ESCALATION_NEEDED else UNSET,
        payload=msgspec.Raw(event.payload or b"{}") if include_payload else UNSET,
    )
    document = data if dialect_data is None else _in_dialect(dialect_data, data)
    message = CloudEvent(
        id=event.id,
        source=f"/holdfast/{ledger_id}/{source}",
        type=_cloudevent_type(topic, event),
        subject=str(event.job_id),
        time=_rfc3339(event.received_at),
        data=document,
    )
    return Message(f"msg_{ledger_id}_{event.id}_{source}", message, data)


def _cloudevent_type(topic: Topic, event: EventRecord) -> str:
    """Return the type of the CloudEvent. A retry has its own, so that a receiver that pages for every stall can ignore it."""
    if topic is Topic.JOB_STATUS_CHANGED and is_retry(event.type, event.reason):
        return RETRIED_TYPE
    return f"dev.holdfast.{topic.value.lower()}.v1"


def _text(event: EventRecord, origin: JobOrigin | None, include_payload: bool) -> str:
    """Return a text such as `job 7 (index) retried, attempt 1: TransientError: HTTP 503`."""
    has_error = event.type in _WITH_ERROR and (include_payload or is_retry(event.type, event.reason))
    payload: dict[str, Any] = msgspec.json.decode(event.payload) if has_error and event.payload else {}
    what, why = describe_event(event.type, event.reason, payload if include_payload else {})
    if not include_payload and isinstance(error := payload.get("error"), dict):
        name = error.get("type")
        why = name if isinstance(name, str) and _CLASS_NAME.fullmatch(name) else ""
    kind = "" if origin is None else f" ({origin.kind})"
    text = f"job {event.job_id}{kind} {what}, attempt {event.attempt}"
    return f"{text}: {why}" if why else text


def redacted_event(event: EventRecord, *, include_payload: bool) -> public.Event:
    """Return the public event, without args, results, errors and checkpoints unless `include_payload` is set."""
    full = public_event(event)
    if include_payload:
        return full
    kept = {name: value for name, value in full.payload.items() if name in OPEN_FIELDS}
    return msgspec.structs.replace(full, payload=kept, signature=None, statement=None, key_id=None)


def _in_dialect(dialect_data: dict[str, Any], data: StatusData) -> dict[str, Any]:
    """Return the event in its dialect, with the fields that only messages have."""
    return {name: value for name in ADDED_FIELDS if (value := getattr(data, name)) is not UNSET} | dialect_data


def _rfc3339(at: Micros) -> str:
    return iso_format(to_datetime(at), "microseconds")
