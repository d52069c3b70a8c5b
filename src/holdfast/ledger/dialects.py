"""Events in the words and shapes of another dialect, for readers that do not know Holdfast's.

The names are those of `core.vocabulary`, the table by which they are also read. An event that the dialect has no name for keeps
Holdfast's name and payload: nothing is left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
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
from holdfast.store.base import EventFilter, Session, Store

_ROBOTS = {Role.WORKER: "robot", Role.SYSTEM: "server"}
"""What `liveness` calls roles; it has no other name for the rest."""


class StateBefore(NamedTuple):
    """What an event does not say of its job: the phase before it, and who holds the job or held it last."""

    phase: Phase | None = None
    holder: str | None = None


UNKNOWN = StateBefore()
StandingOf = Callable[[Event], StateBefore]


def read_dialect(given: Any) -> Dialect:
    return validate.choice("dialect", Dialect, given)


def written(event: Event, dialect: Dialect, ledger_id: str, standing: StateBefore) -> dict[str, Any]:
    """The event as readers of the dialect expect it: a JSON object."""
    return _SHAPES[dialect](event, ledger_id, standing)


def needs_standing(event: Event, dialect: Dialect) -> bool:
    """Whether `written` needs more than the event itself: `liveness` names phases, and the robot that a stall is about."""
    is_about_run = Status.RUNNING in (event.from_status, event.to_status) or event.type in (EventType.STALLED, EventType.RESUMED)
    return dialect is Dialect.LIVENESS and is_about_run


class StatesInOrder:
    """Standings for a reader who sees every event from the first one on. It remembers the jobs that are held or stalled."""

    def __init__(self) -> None:
        self._known: dict[int, StateBefore] = {}

    def __call__(self, event: Event) -> StateBefore:
        """The job's standing before this event."""
        before = self._known.get(event.job_id, UNKNOWN)
        after = _after(before, event)
        if event.to_status in (Status.CLAIMED, Status.RUNNING, Status.STALLED):
            self._known[event.job_id] = after
        else:
            self._known.pop(event.job_id, None)
        return before


def looked_up(store: Store, events: Iterable[Event], dialect: Dialect) -> StandingOf:
    """Standings for a reader who sees some events only: read from the jobs' histories, where any is needed."""
    job_ids = {event.job_id for event in events if needs_standing(event, dialect)}
    found = store.read(lambda session: {id_: _history(session, id_) for id_ in job_ids}) if job_ids else {}

    def standing(event: Event) -> StateBefore:
        revs, standings = found.get(event.job_id, ([], []))
        place = bisect_left(revs, event.rev)
        return standings[place - 1] if place else UNKNOWN

    return standing


def _history(session: Session, job_id: int) -> tuple[list[int], list[StateBefore]]:
    """The revisions at which the job's standing changed, and the standing after each."""
    types = tuple(kind.value for kind in PHASE_TYPES)
    revs: list[int] = []
    standings: list[StateBefore] = []
    after, now = 0, UNKNOWN
    while page := session.events(EventFilter(job_id=job_id, types=types, after=after, limit=PAGE_MAX)):
        for event in map(public_event, page):
            now = _after(now, event)
            revs.append(event.rev)
            standings.append(now)
        after = page[-1].pos
    return revs, standings


def _after(before: StateBefore, event: Event) -> StateBefore:
    holder = Actor.parse(event.actor).name if event.type is EventType.CLAIMED else before.holder
    return StateBefore(phase_after(before.phase, event.type), holder)


# Shapes


def _liveness(event: Event, ledger_id: str, standing: StateBefore) -> dict[str, Any]:
    dialect, actor = Dialect.LIVENESS, Actor.parse(event.actor)
    reason = None if event.reason is None else reason_name(dialect, event.reason)
    from_status = event.from_status and status_name(dialect, event.from_status, standing.phase)
    to_status = status_name(dialect, event.to_status, phase_after(standing.phase, event.type))
    payload: dict[str, Any] = event.payload
    rest: dict[str, Any] = {}
    if has_name(dialect, event.type):
        robot = actor.name if actor.role is Role.WORKER else standing.holder
        payload, rest = _liveness_payload(event, robot, reason)
    told = {
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
    return told | ({"contents": rest} if rest else {}) | _signed(event, "keyId")


def _liveness_payload(event: Event, robot: str | None, reason: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The payload as the document has it, and the fields of Holdfast's that it has no name for."""
    at, rest = _iso(event.at), dict(event.payload)
    about = {"jobId": str(event.job_id), "robotId": rest.pop("holder", None) or robot}
    if event.type is not EventType.STALLED:
        beat = {"stage": "stage", "progress": "progress", "assistRequested": "assist_requested"}
        said = {name: rest.pop(ours) for name, ours in beat.items() if ours in rest}
        return about | {"t": at} | said, rest
    last_beat_at, policy = rest.pop("last_beat_at", None), rest.get("policy")
    rest.pop("detected_at", None)
    limits = policy and {"heartbeatIntervalMs": policy["heartbeat_interval_ms"], "stallAfterMs": policy["stall_after_ms"]}
    silence = {"lastHeartbeatAt": None if last_beat_at is None else to_iso(last_beat_at), "policy": limits}
    return about | {"detectedAt": at, "reason": reason} | silence, rest


def _binding(event: Event, actor: Actor, ledger_id: str) -> dict[str, Any]:
    """What makes an event one of this ledger and this attempt, with the fields that an envelope of the same actor has."""
    bound: dict[str, Any] = {"ledger": ledger_id, "attempt": event.attempt}
    if actor.role is not Role.WORKER:
        return bound | {"rev": event.rev}
    counter = None if event.statement is None else counter_of(event.statement.encode())
    return bound | {"incarnation": actor.incarnation} | ({} if counter is None else {"counter": counter})


def _jobs(event: Event, ledger_id: str, standing: StateBefore) -> dict[str, Any]:
    dialect = Dialect.JOBS
    return {
        "id": event.id,
        "job_id": event.job_id,
        "type": event_name(dialect, event.type),
        "ts": _iso(event.received_at),
        "actor": event.actor,
        "correlation_id": event.correlation_id,
        "cause": event.cause,
        "payload": event.payload,
        **_common(event, dialect),
    } | _signed(event, "key_id")


def _tasks(event: Event, ledger_id: str, standing: StateBefore) -> dict[str, Any]:
    dialect, payload, at = Dialect.TASKS, event.payload, _iso(event.received_at)
    if has_name(dialect, event.type):
        claim = {"claimed_by": Actor.parse(event.actor).name, "attempt": event.attempt, "last_heartbeat_at": at}
        payload = claim | ({"claimed_at": at} if event.type is EventType.CLAIMED else {}) | payload
    return {
        "id": event.id,
        "task_id": event.job_id,
        "type": event_name(dialect, event.type),
        "at": at,
        "actor": event.actor,
        "correlation_id": event.correlation_id,
        "cause": event.cause,
        "payload": payload,
        **_common(event, dialect),
    } | _signed(event, "key_id")


def _common(event: Event, dialect: Dialect) -> dict[str, Any]:
    return {
        "version": event.version,
        "rev": event.rev,
        "attempt": event.attempt,
        "position": event.pos,
        "from_status": event.from_status and status_name(dialect, event.from_status),
        "to_status": status_name(dialect, event.to_status),
        "reason": event.reason,
        "request_id": event.request_id,
        "trace_id": event.trace_id,
    }


def _signed(event: Event, key_id: str) -> dict[str, Any]:
    """The signature is over `statement` as it stands there, not over the event in the dialect's words."""
    if event.key_id is None:
        return {}
    return {key_id: event.key_id, "signature": event.signature, "statement": event.statement}


def _iso(moment: datetime) -> str:
    return to_iso(to_micros(moment))


def _own(event: Event, ledger_id: str, standing: StateBefore) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(event)
    return found


_SHAPES: dict[Dialect, Callable[[Event, str, StateBefore], dict[str, Any]]] = {
    Dialect.HOLDFAST: _own,
    Dialect.LIVENESS: _liveness,
    Dialect.JOBS: _jobs,
    Dialect.TASKS: _tasks,
}


def in_dialect(store: Store, events: Sequence[Event], dialect: Dialect, ledger_id: str) -> list[dict[str, Any]]:
    """Any events of this ledger as readers of the dialect expect them."""
    standing_of = looked_up(store, events, dialect)
    return [written(event, dialect, ledger_id, standing_of(event)) for event in events]
