"""The names that other systems use for Holdfast's events, statuses and reasons: one table for both directions.

A dialect is the vocabulary of another specification. Its names are accepted wherever a name is read. They are written if a
reader asks for that dialect. The ledger stores Holdfast's own names only.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.model import EventType, Phase, StallReason, Status
from holdfast.errors import ValidationError


class Dialect(StrEnum):
    """The vocabulary that a reader of events asks for."""

    HOLDFAST = "holdfast"
    LIVENESS = "liveness"
    JOBS = "jobs"
    TASKS = "tasks"


class DialectNames(NamedTuple):
    """The names of one dialect. All of them are read. If there are several for one thing, the first is written."""

    events: tuple[tuple[str, EventType], ...] = ()
    statuses: tuple[tuple[str, Status, Phase | None], ...] = ()
    """The name, and the status and phase in Holdfast. The phase is None if the name means any phase."""
    reasons: tuple[tuple[str, StallReason], ...] = ()


E, S, P = EventType, Status, Phase

DIALECTS: dict[Dialect, DialectNames] = {
    Dialect.HOLDFAST: DialectNames(),
    Dialect.LIVENESS: DialectNames(
        events=(
            ("JOB_HEARTBEAT", E.HEARTBEAT),
            ("JOB_EXECUTION_STALLED", E.STALLED),
            ("JOB_EXECUTION_RESUMED", E.RESUMED),
        ),
        statuses=(
            ("EXECUTING", S.RUNNING, P.EXECUTING),
            ("ASSISTED", S.RUNNING, P.ASSISTED),
            ("ABORTING_SAFE_EXIT", S.RUNNING, P.ABORTING),
            ("STALLED", S.STALLED, None),
        ),
        reasons=(("ROBOT_ERROR", StallReason.WORKER_ERROR),),
    ),
    Dialect.JOBS: DialectNames(
        events=(
            ("job_claimed", E.CLAIMED),
            ("job_started", E.STARTED),
            ("job_heartbeat", E.HEARTBEAT),
            ("job_lease_renewed", E.HEARTBEAT),
            ("job_succeeded", E.SUCCEEDED),
            ("job_failed", E.FAILED),
            ("job_cancelled", E.CANCELLED),
            ("job_dead_lettered", E.DEAD_LETTERED),
            ("job_compensated", E.COMPENSATED),
        ),
        statuses=(("assigned", S.CLAIMED, None), ("orphaned", S.STALLED, None)),
    ),
    Dialect.TASKS: DialectNames(
        events=(("task_claimed", E.CLAIMED), ("task_heartbeat", E.HEARTBEAT)),
        statuses=(("in_progress", S.RUNNING, None),),
    ),
}

# Reading

EVENT_ALIASES: dict[str, EventType] = {name: kind for names in DIALECTS.values() for name, kind in names.events}
STATUS_ALIASES: dict[str, Status] = {name: found for names in DIALECTS.values() for name, found, _ in names.statuses}
PHASE_ALIASES: dict[str, Phase] = {
    name: found for names in DIALECTS.values() for name, _, found in names.statuses if found is not None
}
REASON_ALIASES: dict[str, StallReason] = {name: reason for names in DIALECTS.values() for name, reason in names.reasons}


def status(name: str) -> Status:
    """Return the status for any of its names. Raise ValueError for an unknown name."""
    return STATUS_ALIASES.get(name) or Status(name)


def phase(name: str) -> Phase:
    return PHASE_ALIASES.get(name) or Phase(name)


def event_type(name: str) -> EventType:
    return EVENT_ALIASES.get(name) or EventType(name)


def event_types(names: Iterable[str]) -> tuple[EventType, ...]:
    """Return the types of a filter for any of their names. Raise ValidationError for an unknown name."""
    try:
        return tuple(event_type(name) for name in names)
    except (ValueError, TypeError, RecursionError):
        raise ValidationError(f"types must be among {', '.join(EventType)}", field="types") from None


def stall_reason(name: str) -> StallReason:
    return REASON_ALIASES.get(name) or StallReason(name)


# Writing


def has_name(dialect: Dialect, kind: EventType) -> bool:
    """Return whether the dialect has its own name for this event type."""
    return any(kind is found for _, found in DIALECTS[dialect].events)


def event_name(dialect: Dialect, kind: EventType) -> str:
    """Return the dialect's name for this event type, or Holdfast's name if it has none."""
    return next((name for name, found in DIALECTS[dialect].events if found is kind), kind.value)


def status_name(dialect: Dialect, status: Status, phase: Phase | None = None) -> str:
    """Return the dialect's name for this status, or Holdfast's name if it has none. Some dialects have a name per phase."""
    for name, found, in_phase in DIALECTS[dialect].statuses:
        if found is status and in_phase in (None, phase):
            return name
    return status.value


def reason_name(dialect: Dialect, reason: str) -> str:
    """Return the dialect's name for this reason, or the reason itself if it has none."""
    return next((name for name, found in DIALECTS[dialect].reasons if found == reason), reason)
