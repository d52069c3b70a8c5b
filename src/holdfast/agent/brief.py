"""The brief: what an agent has to know to go on with a task, and not more."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.agent.idle import Nothing
from holdfast.agent.tasks import UNSET, Task, contents_of, task_of
from holdfast.core import limits, payloads, vocabulary
from holdfast.core.model import Event, EventType, Job
from holdfast.core.vocabulary import Dialect
from holdfast.core.words import EVENT_ERROR_CHARACTERS_MAX, error_line, event_words
from holdfast.ledger.acting import Acts
from holdfast.ledger.face import to_datetime
from holdfast.store.agents import LeftBehind
from holdfast.store.base import Session

BYTES_PER_TOKEN = 4


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a task's history. `alias` is what the event is called among agents, where it is called otherwise."""

    rev: int
    type: str
    at: datetime
    by: str
    attempt: int
    status: str
    alias: str | msgspec.UnsetType = UNSET
    reason: str | msgspec.UnsetType = UNSET
    payload: Any = UNSET
    error: str | msgspec.UnsetType = UNSET
    """The error in one line, where the payload is too long to be here."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The last thing that an earlier attempt left for whoever goes on."""

    attempt: int
    at: datetime
    by: str
    checkpoint: Any


class Related(msgspec.Struct, frozen=True):
    """A task at the other end of a dependency, and how many tasks it waits for itself: one that waits for this one alone can go
    on when this is done."""

    id: int
    kind: str
    status: str
    waits_for: int


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """`why` says by which part of the rule the task was found: focus, running, claimed, last, next or expired; nothing where
    there is none. Then `nothing` says why not, and `until` when the next one becomes available, if that is known.

    `history` is what has happened since the agent last looked, up to the newest 50 events; `history_omitted` more are older.
    `blocked_by` is what the task waits for, `unlocks` what waits for it, each up to 20.
    `tokens` is about what the brief costs to read: its length as JSON in ASCII divided by four, rounded up.
    `replayed` as in a Task.
    """

    task: Task | None
    why: str
    nothing: Nothing | None = None
    until: datetime | None = None
    history: list[Entry] = []
    history_omitted: int = 0
    checkpoints: list[Checkpoint] = []
    blocked_by: list[Related] = []
    unlocks: list[Related] = []
    cursor: int = 0
    tokens: int = 0
    replayed: bool | msgspec.UnsetType = UNSET


class InFull(msgspec.Struct, frozen=True, kw_only=True):
    """All about a task for whoever looks at it; of its history, the newest 50 events."""

    task: Task
    history: list[Entry]
    history_omitted: int
    blocked_by: list[Related]
    unlocks: list[Related]


def weighed(brief: Brief) -> Brief:
    """With about what it costs to read: what is not ASCII is longer than a letter, in tokens as on the command line."""
    spelled = msgspec.json.encode(brief).decode().encode("ascii", "backslashreplace")
    return msgspec.structs.replace(brief, tokens=-(-len(spelled) // BYTES_PER_TOKEN))


def brief_of(acts: Acts, job: Job, why: str, cursor: int) -> Brief:
    """All about a task that the agent now has, and of its history what it has not been told of.

    A resume leaves the cursor at an event of its own. So it stands at one of this task's if that was the last one the agent was
    briefed on; of any other task, it is told all.
    """
    since = cursor if acts.session.has_event(job.id, cursor) else 0
    events, older = history(acts.session, job, since)
    return Brief(
        task=task_of(job, contents_of(job)),
        why=why,
        history=[entry(event) for event in events],
        history_omitted=older,
        checkpoints=checkpoints(acts.session, job),
        blocked_by=blockers(acts.session, job),
        unlocks=unlocked(acts.session, job),
        cursor=max([cursor, *(event.pos for event in events)]),
    )


def in_full(session: Session, job: Job, bytes_max: int | None = None) -> InFull:
    events, older = history(session, job, 0)
    return InFull(
        task=task_of(job, contents_of(job, bytes_max)),
        history=[entry(event) for event in events],
        history_omitted=older,
        blocked_by=blockers(session, job),
        unlocks=unlocked(session, job),
    )


def history(session: Session, job: Job, since: int) -> tuple[list[Event], int]:
    """The newest events after a position, and how many older ones there are."""
    events = session.newest_events(job.id, since, limits.BRIEF_EVENTS_MAX)
    if len(events) < limits.BRIEF_EVENTS_MAX:
        return events, 0
    oldest = events[0].rev
    if since == 0:
        return events, oldest - 1
    return events, session.count_events(job.id, since, oldest, limits.BRIEF_COUNT_MAX)


def entry(event: Event) -> Entry:
    named = vocabulary.has_name(Dialect.TASKS, event.type)
    shown = event.payload is not None and event.type is not EventType.ENQUEUED and len(event.payload) <= limits.BRIEF_PAYLOAD_MAX
    return Entry(
        rev=event.rev,
        type=event.type.value,
        at=to_datetime(event.received_at),
        by=str(event.actor),
        attempt=event.attempt,
        status=event.to_status.value,
        alias=vocabulary.event_name(Dialect.TASKS, event.type) if named else UNSET,
        reason=UNSET if event.reason is None else event.reason,
        payload=msgspec.Raw(event.payload) if shown and event.payload is not None else UNSET,
        error=UNSET if shown or event.payload is None else _error(event.payload),
    )


def _error(payload: bytes) -> str | msgspec.UnsetType:
    body = msgspec.json.decode(payload)
    error = body.get("error", body.get("last_error"))
    return UNSET if error is None else error_line(error, EVENT_ERROR_CHARACTERS_MAX)


def entry_words(entry: Entry) -> tuple[str, str]:
    """What happened and why, as people and agents read it."""
    if isinstance(entry.payload, msgspec.Raw):
        payload = msgspec.json.decode(entry.payload)
    else:
        payload = {} if isinstance(entry.error, msgspec.UnsetType) else {"error": entry.error}
    return event_words(entry.type, None if isinstance(entry.reason, msgspec.UnsetType) else entry.reason, payload)


def checkpoints(session: Session, job: Job) -> list[Checkpoint]:
    """The newest one of each earlier attempt that left one, the latest attempt first."""
    if job.checkpoint is None or job.attempt <= 1:
        return []
    above = max(0, job.rev - limits.CHECKPOINT_EVENTS_MAX)
    found: dict[int, Checkpoint] = {}
    most = limits.BRIEF_CHECKPOINTS_MAX, limits.CHECKPOINT_BEATS_MAX
    for beat in session.checkpoint_beats(job.id, job.attempt, above, *most):
        left = None if beat.attempt in found else _left(beat)
        if left is not None:
            found[beat.attempt] = left
    return list(found.values())


def blockers(session: Session, job: Job) -> list[Related]:
    return [Related(*found) for found in session.blockers(job.id, limits.BRIEF_RELATED_MAX)] if job.depends_on else []


def unlocked(session: Session, job: Job) -> list[Related]:
    return [Related(*found) for found in session.unlocks(job.id, limits.BRIEF_RELATED_MAX)]


def _left(beat: LeftBehind) -> Checkpoint | None:
    body = payloads.checkpoint_of(beat.payload)
    if body is None:
        return None
    large = len(body) > limits.AGENT_VALUE_BYTES_MAX
    told: Any = {"omitted_bytes": len(body)} if large else msgspec.Raw(body)
    return Checkpoint(beat.attempt, to_datetime(beat.at), beat.actor, told)
