"""Convert events to the names and shapes of another dialect, for readers that do not use Holdfast's.

The names are those of `core.vocabulary`, the table by which they are also read. An event for which the dialect has no name keeps
Holdfast's name and payload. No event is left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.core.evolve import PHASE_TYPES, phase_after
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Actor, EventType, Phase, Role, Status
from holdfast.core.payloads import counter_of
from holdfast.core.vocabulary import Dialect, event_name, has_name, reason_name, status_name
from holdfast.ledger import validate
from holdfast.ledger.public import Event, public_event, to_micros
from holdfast.proof.encoding import to_iso
from holdfast.store.base import Store
from holdfast.store.events import EventFilter
from holdfast.store.session import Session

_ROBOTS = {Role.WORKER: "robot", Role.SYSTEM: "server"}
"""The names of roles in `liveness`. Other roles have the same name there."""


class StateBefore(NamedTuple):
    """The state of a job before an event, which the event itself does not have: its phase, and its current or last holder."""

    phase: Phase | None = None
    holder: str | None = None


UNKNOWN = StateBefore()
FindState = Callable[[Event], StateBefore]


def read_dialect(given: Any) -> Dialect:
    return validate.choice("dialect", Dialect, given)


def translate(event: Event, dialect: Dialect, ledger_id: str, before: StateBefore) -> dict[str, Any]:
    """Return the event as a JSON object in the dialect."""
    return _SHAPES[dialect](event, ledger_id, before)


def needs_state(event: Event, dialect: Dialect) -> bool:
    """Return whether `translate` needs the state before the event: `liveness` names phases, and the robot of a stall."""
    is_about_run = Status.RUNNING in (event.from_status, event.to_status) or event.type in (EventType.STALLED, EventType.RESUMED)
    return dialect is Dialect.LIVENESS and is_about_run


STATE_TYPES = tuple(kind.value for kind in PHASE_TYPES)
"""The events after which a job's state may be another."""


def read_states(store: Store, events: Iterable[Event], dialect: Dialect) -> FindState:
    """Return a function that finds the state before any of these events. It uses the jobs' histories, if any is needed."""
    return find_states(lambda job_id: store.read(lambda session: list(_state_events(session, job_id))), events, dialect)


def find_states(read: Callable[[int], Iterable[Event]], events: Iterable[Event], dialect: Dialect) -> FindState:
    """The same with a function that reads the events of `STATE_TYPES` of a job."""
    found = {id_: _history(read(id_)) for id_ in {event.job_id for event in events if needs_state(event, dialect)}}

    def find(event: Event) -> StateBefore:
        revs, states = found.get(event.job_id, ([], []))
        place = bisect_left(revs, event.rev)
        return states[place - 1] if place else UNKNOWN

    return find


def _state_events(session: Session, job_id: int) -> Iterator[Event]:
    after = 0
    while page := session.events(EventFilter(job_id=job_id, types=STATE_TYPES, after=after, limit=PAGE_MAX)):
        yield from map(public_event, page)
        after = page[-1].pos


def _history(events: Iterable[Event]) -> tuple[list[int], list[StateBefore]]:
    """Return the revisions at which the job's state changed, and the state after each."""
    revs: list[int] = []
    states: list[StateBefore] = []
    now = UNKNOWN
    for event in events:
        holder = Actor.parse(event.actor).name if event.type is EventType.CLAIMED else now.holder
        now = StateBefore(phase_after(now.phase, event.type), holder)
        revs.append(event.rev)
        states.append(now)
    return revs, states


# Shapes


def _liveness(event: Event, ledger_id: str, before: StateBefore) -> dict[str, Any]:
    dialect, actor = Dialect.LIVENESS, Actor.parse(event.actor)
    reason = None if event.reason is None else reason_name(dialect, event.reason)
    from_status = event.from_status and status_name(dialect, event.from_status, before.phase)
    to_status = status_name(dialect, event.to_status, phase_after(before.phase, event.type))
    payload: dict[str, Any] = event.payload
    rest: dict[str, Any] = {}
    if has_name(dialect, event.type):
        robot = actor.name if actor.role is Role.WORKER else before.holder
        payload, rest = _liveness_payload(event, robot, reason)
    fields = {
        "id": event.id,
        "jobId": str(event.job_id),
        "type": event_name(dialect, event.type),
        "at": _iso(event.at),
        "actor": {"type": _ROBOTS.get(actor.role, actor.role.value), "id": actor.name},
        "payload": payload,
        "binding": _binding(event, actor, ledger_id),
        "rev": event.rev,
        "position": event.pos,
        "receivedAt": _iso(event.received_at),
        "fromStatus": from_status,
        "toStatus": to_status,
        "reason": reason,
        "correlationId": event.correlation_id,
        "traceId": event.trace_id,
        "cause": event.cause,
        "requestId": event.request_id,
        "version": event.version,
    }
    return fields | ({"contents": rest} if rest else {}) | _signed(event, "keyId")


def _liveness_payload(event: Event, robot: str | None, reason: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the payload in the dialect, and the fields for which the dialect has no name."""
    at, rest = _iso(event.at), dict(event.payload)
    about = {"jobId": str(event.job_id), "robotId": rest.pop("holder", robot)}
    if event.type is not EventType.STALLED:
        beat = {"stage": "stage", "progress": "progress", "assistRequested": "assist_requested"}
        given = {name: rest.pop(ours) for name, ours in beat.items() if ours in rest}
        return about | {"t": at} | given, rest
    del rest["detected_at"]
    policy, last_beat_at = rest["policy"], to_iso(rest.pop("last_beat_at"))
    limits = {"heartbeatIntervalMs": policy["heartbeat_interval_ms"], "stallAfterMs": policy["stall_after_ms"]}
    return about | {"detectedAt": at, "reason": reason, "lastHeartbeatAt": last_beat_at, "policy": limits}, rest


def _binding(event: Event, actor: Actor, ledger_id: str) -> dict[str, Any]:
    """Return the fields that bind an event to this ledger and attempt: those of an envelope of the same actor."""
    bound: dict[str, Any] = {"ledger": ledger_id, "attempt": event.attempt}
    if actor.role is not Role.WORKER:
        return bound | {"rev": event.rev}
    counter = None if event.statement is None else counter_of(event.statement.encode())
    return bound | {"incarnation": actor.incarnation} | ({} if counter is None else {"counter": counter})


def _jobs(event: Event, ledger_id: str, before: StateBefore) -> dict[str, Any]:
    return _renamed(event, Dialect.JOBS, "job_id", "ts", event.payload)


def _tasks(event: Event, ledger_id: str, before: StateBefore) -> dict[str, Any]:
    payload, at = event.payload, _iso(event.received_at)
    if has_name(Dialect.TASKS, event.type):
        claim = {"claimed_by": Actor.parse(event.actor).name, "attempt": event.attempt, "last_heartbeat_at": at}
        payload = claim | ({"claimed_at": at} if event.type is EventType.CLAIMED else {}) | payload
    return _renamed(event, Dialect.TASKS, "task_id", "at", payload)


def _renamed(event: Event, dialect: Dialect, job_id: str, time: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return the event with the names of a dialect, two of which are those of the job's id and of the time."""
    return {
        "id": event.id,
        job_id: event.job_id,
        "type": event_name(dialect, event.type),
        time: _iso(event.received_at),
        "actor": event.actor,
        "correlation_id": event.correlation_id,
        "cause": event.cause,
        "payload": payload,
        "version": event.version,
        "rev": event.rev,
        "attempt": event.attempt,
        "position": event.pos,
        "from_status": event.from_status and status_name(dialect, event.from_status),
        "to_status": status_name(dialect, event.to_status),
        "reason": event.reason,
        "request_id": event.request_id,
        "trace_id": event.trace_id,
        **_signed(event, "key_id"),
    }


def _signed(event: Event, key_id: str) -> dict[str, Any]:
    """Return the signature's fields. It signs `statement`, not the event in the dialect."""
    if event.key_id is None:
        return {}
    return {key_id: event.key_id, "signature": event.signature, "statement": event.statement}


def _iso(moment: datetime) -> str:
    return to_iso(to_micros(moment))


def _own(event: Event, ledger_id: str, before: StateBefore) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(event)
    return found


_SHAPES: dict[Dialect, Callable[[Event, str, StateBefore], dict[str, Any]]] = {
    Dialect.HOLDFAST: _own,
    Dialect.LIVENESS: _liveness,
    Dialect.JOBS: _jobs,
    Dialect.TASKS: _tasks,
}


def in_dialect(store: Store, events: Sequence[Event], dialect: Dialect, ledger_id: str) -> list[dict[str, Any]]:
    """Return any events of this ledger as JSON objects in the dialect."""
    find_state = read_states(store, events, dialect)
    return [translate(event, dialect, ledger_id, find_state(event)) for event in events]
