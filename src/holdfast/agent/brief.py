"""What an agent or a reader is shown of a task: the brief, the details and the history."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.agent.selection import IdleReason
from holdfast.agent.tasks import UNSET, Task, contents_of, task_of
from holdfast.core import limits, payloads, vocabulary
from holdfast.core.formatting import EVENT_ERROR_CHARACTERS_MAX, describe_event, format_error
from holdfast.core.model import EventRecord, EventType, JobRecord
from holdfast.core.vocabulary import Dialect
from holdfast.errors import NotFound
from holdfast.ledger import Ledger, validate
from holdfast.ledger.public import to_datetime
from holdfast.ledger.transaction import JobSteps
from holdfast.store.agents import CheckpointBeat
from holdfast.store.base import EventFilter, Session

BYTES_PER_TOKEN = 4


class TaskHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
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


class AttemptCheckpoint(msgspec.Struct, frozen=True):
    """The last thing that an earlier attempt left for whoever goes on."""

    attempt: int
    at: datetime
    by: str
    checkpoint: Any


class RelatedTask(msgspec.Struct, frozen=True):
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
    nothing: IdleReason | None = None
    until: datetime | None = None
    history: list[TaskHistoryEntry] = []
    history_omitted: int = 0
    checkpoints: list[AttemptCheckpoint] = []
    blocked_by: list[RelatedTask] = []
    unlocks: list[RelatedTask] = []
    cursor: int = 0
    tokens: int = 0
    replayed: bool | msgspec.UnsetType = UNSET


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All about a task for whoever looks at it; of its history, the newest 50 events."""

    task: Task
    history: list[TaskHistoryEntry]
    history_omitted: int
    blocked_by: list[RelatedTask]
    unlocks: list[RelatedTask]


def with_token_count(brief: Brief) -> Brief:
    """With about what it costs to read: what is not ASCII is longer than a letter, in tokens as on the command line."""
    spelled = msgspec.json.encode(brief).decode().encode("ascii", "backslashreplace")
    return msgspec.structs.replace(brief, tokens=-(-len(spelled) // BYTES_PER_TOKEN))


def build_brief(acts: JobSteps, job: JobRecord, why: str, cursor: int) -> Brief:
    """All about a task that the agent now has, and of its history what it has not been told of.

    A resume leaves the cursor at an event of its own. So it stands at one of this task's if that was the last one the agent was
    briefed on; of any other task, it is told all.
    """
    since = cursor if acts.session.has_event(job.id, cursor) else 0
    events, older = read_newest_events(acts.session, job, since)
    return Brief(
        task=task_of(job, contents_of(job)),
        why=why,
        history=[history_entry(event) for event in events],
        history_omitted=older,
        checkpoints=read_checkpoints(acts.session, job),
        blocked_by=read_blockers(acts.session, job),
        unlocks=read_dependents(acts.session, job),
        cursor=max([cursor, *(event.pos for event in events)]),
    )


def build_details(session: Session, job: JobRecord, bytes_max: int | None = None) -> TaskDetails:
    events, older = read_newest_events(session, job, 0)
    return TaskDetails(
        task=task_of(job, contents_of(job, bytes_max)),
        history=[history_entry(event) for event in events],
        history_omitted=older,
        blocked_by=read_blockers(session, job),
        unlocks=read_dependents(session, job),
    )


def read_newest_events(session: Session, job: JobRecord, since: int) -> tuple[list[EventRecord], int]:
    """The newest events after a position, and how many older ones there are."""
    events = session.newest_events(job.id, since, limits.BRIEF_EVENTS_MAX)
    if len(events) < limits.BRIEF_EVENTS_MAX:
        return events, 0
    oldest = events[0].rev
    if since == 0:
        return events, oldest - 1
    return events, session.count_events(job.id, since, oldest, limits.BRIEF_COUNT_MAX)


def history_entry(event: EventRecord) -> TaskHistoryEntry:
    named = vocabulary.has_name(Dialect.TASKS, event.type)
    shown = event.payload is not None and event.type is not EventType.ENQUEUED and len(event.payload) <= limits.BRIEF_PAYLOAD_MAX
    return TaskHistoryEntry(
        rev=event.rev,
        type=event.type.value,
        at=to_datetime(event.received_at),
        by=str(event.actor),
        attempt=event.attempt,
        status=event.to_status.value,
        alias=vocabulary.event_name(Dialect.TASKS, event.type) if named else UNSET,
        reason=UNSET if event.reason is None else event.reason,
        payload=msgspec.Raw(event.payload) if shown and event.payload is not None else UNSET,
        error=UNSET if shown or event.payload is None else _error_in_one_line(event.payload),
    )


def _error_in_one_line(payload: bytes) -> str | msgspec.UnsetType:
    body = msgspec.json.decode(payload)
    error = body.get("error", body.get("last_error"))
    return UNSET if error is None else format_error(error, EVENT_ERROR_CHARACTERS_MAX)


def describe_entry(entry: TaskHistoryEntry) -> tuple[str, str]:
    """What happened and why, as people and agents read it."""
    if isinstance(entry.payload, msgspec.Raw):
        payload = msgspec.json.decode(entry.payload)
    else:
        payload = {} if isinstance(entry.error, msgspec.UnsetType) else {"error": entry.error}
    return describe_event(entry.type, None if isinstance(entry.reason, msgspec.UnsetType) else entry.reason, payload)


def read_checkpoints(session: Session, job: JobRecord) -> list[AttemptCheckpoint]:
    """The newest one of each earlier attempt that left one, the latest attempt first."""
    if job.checkpoint is None or job.attempt <= 1:
        return []
    above = max(0, job.rev - limits.CHECKPOINT_EVENTS_MAX)
    found: dict[int, AttemptCheckpoint] = {}
    most = limits.BRIEF_CHECKPOINTS_MAX, limits.CHECKPOINT_BEATS_MAX
    for beat in session.checkpoint_beats(job.id, job.attempt, above, *most):
        left = None if beat.attempt in found else _checkpoint_of(beat)
        if left is not None:
            found[beat.attempt] = left
    return list(found.values())


def read_blockers(session: Session, job: JobRecord) -> list[RelatedTask]:
    return [RelatedTask(*found) for found in session.blockers(job.id, limits.BRIEF_RELATED_MAX)] if job.depends_on else []


def read_dependents(session: Session, job: JobRecord) -> list[RelatedTask]:
    return [RelatedTask(*found) for found in session.unlocks(job.id, limits.BRIEF_RELATED_MAX)]


def _checkpoint_of(beat: CheckpointBeat) -> AttemptCheckpoint | None:
    body = payloads.checkpoint_of(beat.payload)
    if body is None:
        return None
    large = len(body) > limits.AGENT_VALUE_BYTES_MAX
    told: Any = {"omitted_bytes": len(body)} if large else msgspec.Raw(body)
    return AttemptCheckpoint(beat.attempt, to_datetime(beat.at), beat.actor, told)


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of a task's history, the oldest first. `next_after` is where the next page begins; None where there is none."""

    job_id: int
    events: list[TaskHistoryEntry]
    next_after: int | None


def get_task(ledger: Ledger, id_: int, *, bytes_max: int | None = None) -> TaskDetails:
    """All about a task, whoever has it. What is longer than `bytes_max` is left out, and `omitted` says how long it is."""
    id_ = validate.job_id(id_)

    def work(session: Session) -> bytes:
        return msgspec.json.encode(build_details(session, _load_job(session, id_), bytes_max))

    return msgspec.json.decode(ledger.acting.look(work), type=TaskDetails)


def get_history(ledger: Ledger, id_: int, *, after: int = 0, limit: int = limits.PAGE_MAX) -> HistoryPage:
    """What happened to a task after a position. Payloads are left out where a brief leaves them out."""
    id_ = validate.job_id(id_)
    limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
    chosen = EventFilter(job_id=id_, after=limits.check_integer("after", after, 0, limits.JOB_ID_MAX), limit=limit)

    def work(session: Session) -> bytes:
        _load_job(session, id_)
        events = session.events(chosen)
        more = events[-1].pos if len(events) == limit else None
        return msgspec.json.encode(HistoryPage(id_, [history_entry(event) for event in events], more))

    return msgspec.json.decode(ledger.acting.look(work), type=HistoryPage)


def _load_job(session: Session, id_: int) -> JobRecord:
    job = session.load([id_], lock=False).get(id_)
    if job is None:
        raise NotFound(f"there is no job {id_}", job_id=id_)
    return job
