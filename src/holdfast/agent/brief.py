"""Views of a task for agents and readers: the brief, the details and the history."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.agent.selection import IdleReason
from holdfast.agent.tasks import UNSET, Task, contents_of, task_of
from holdfast.core import limits, payloads, vocabulary
from holdfast.core.formatting import EVENT_ERROR_CHARACTERS_MAX, describe_event, format_error
from holdfast.core.model import EventRecord, EventType, JobRecord
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import Ledger, validate
from holdfast.ledger.public import to_datetime
from holdfast.ledger.transaction import JobSteps
from holdfast.store.agents import CheckpointBeat
from holdfast.store.events import EventFilter
from holdfast.store.session import Session

BYTES_PER_TOKEN = 4


class TaskHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a task's history. `alias` is the event's name in the vocabulary of agents, if that is another one."""

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
    """The error in one line, if the payload is too long to be included."""


class AttemptCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint of an earlier attempt."""

    attempt: int
    at: datetime
    by: str
    checkpoint: Any


class RelatedTask(msgspec.Struct, frozen=True):
    """A task at the other end of a dependency. `waits_for` is the number of tasks that it waits for.

    A dependent that waits for one task can run when this task succeeds.
    """

    id: int
    kind: str
    status: str
    waits_for: int


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `resume`: a task and what the agent needs to work on it.

    `why` is the rule that selected the task: focus, running, claimed, last, next or expired. If there is no task, `why` is
    nothing, `nothing` says why, and `until` is when the next task becomes available, if that is known.

    `history` has the events since the agent's last brief of this task, up to the newest 50; `history_omitted` counts older ones.
    `blocked_by` lists the tasks that this one waits for, `unlocks` those that wait for it, each up to 20.
    `tokens` estimates the cost of reading the brief: its length as JSON in ASCII divided by four, rounded up.
    `replayed` is as in a Task.
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
    """A task with its contents, its dependencies and the newest 50 events of its history."""

    task: Task
    history: list[TaskHistoryEntry]
    history_omitted: int
    blocked_by: list[RelatedTask]
    unlocks: list[RelatedTask]


def with_token_count(brief: Brief) -> Brief:
    """Return the brief with its estimated tokens. A non-ASCII character counts as its escape: it costs more than a letter."""
    ascii_json = msgspec.json.encode(brief).decode().encode("ascii", "backslashreplace")
    return msgspec.structs.replace(brief, tokens=-(-len(ascii_json) // BYTES_PER_TOKEN))


def build_brief(steps: JobSteps, job: JobRecord, why: str, cursor: int) -> Brief:
    """Return the brief of a task that the agent now holds, with the part of its history that the agent has not seen.

    A resume sets the cursor to an event of the task that it returns. So the cursor is at an event of this task only if the
    agent's last brief was of this task. For any other task, the brief has the whole history.
    """
    since = cursor if steps.session.has_event(job.id, cursor) else 0
    events, older = read_newest_events(steps.session, job, since)
    return Brief(
        task=task_of(job, contents_of(job)),
        why=why,
        history=[history_entry(event) for event in events],
        history_omitted=older,
        checkpoints=read_checkpoints(steps.session, job),
        blocked_by=read_blockers(steps.session, job),
        unlocks=read_dependents(steps.session, job),
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
    """Return the newest events after a position, and the number of older ones."""
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
    """Return what happened and why, as text for people and agents."""
    if isinstance(entry.payload, msgspec.Raw):
        payload = msgspec.json.decode(entry.payload)
    else:
        payload = {} if isinstance(entry.error, msgspec.UnsetType) else {"error": entry.error}
    return describe_event(entry.type, None if isinstance(entry.reason, msgspec.UnsetType) else entry.reason, payload)


def read_checkpoints(session: Session, job: JobRecord) -> list[AttemptCheckpoint]:
    """Return the newest checkpoint of each earlier attempt that has one, the latest attempt first."""
    if job.checkpoint is None or job.attempt <= 1:
        return []
    above = max(0, job.rev - limits.CHECKPOINT_EVENTS_MAX)
    checkpoints: dict[int, AttemptCheckpoint] = {}
    most = limits.BRIEF_CHECKPOINTS_MAX, limits.CHECKPOINT_BEATS_MAX
    for beat in session.checkpoint_beats(job.id, job.attempt, above, *most):
        checkpoint = None if beat.attempt in checkpoints else _checkpoint_of(beat)
        if checkpoint is not None:
            checkpoints[beat.attempt] = checkpoint
    return list(checkpoints.values())


def read_blockers(session: Session, job: JobRecord) -> list[RelatedTask]:
    return [RelatedTask(*row) for row in session.blockers(job.id, limits.BRIEF_RELATED_MAX)] if job.depends_on else []


def read_dependents(session: Session, job: JobRecord) -> list[RelatedTask]:
    return [RelatedTask(*row) for row in session.unlocks(job.id, limits.BRIEF_RELATED_MAX)]


def _checkpoint_of(beat: CheckpointBeat) -> AttemptCheckpoint | None:
    body = payloads.checkpoint_of(beat.payload)
    if body is None:
        return None
    large = len(body) > limits.AGENT_VALUE_BYTES_MAX
    value: Any = {"omitted_bytes": len(body)} if large else msgspec.Raw(body)
    return AttemptCheckpoint(beat.attempt, to_datetime(beat.at), beat.actor, value)


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of a task's history, the oldest first. `next_after` is the position of the next page, None on the last page."""

    job_id: int
    events: list[TaskHistoryEntry]
    next_after: int | None


def get_task(ledger: Ledger, id_: int, *, bytes_max: int | None = None) -> TaskDetails:
    """Return a task with its details. A content longer than `bytes_max` is left out, and `omitted` has its length."""
    id_ = validate.job_id(id_)

    def work(session: Session) -> bytes:
        return msgspec.json.encode(build_details(session, session.load_one(id_), bytes_max))

    return msgspec.json.decode(ledger.step_transactions.read("task", id_, {"bytes_max": bytes_max}, work), type=TaskDetails)


def get_history(ledger: Ledger, id_: int, *, after: int = 0, limit: int = limits.PAGE_MAX) -> HistoryPage:
    """Return the events of a task after a position. Payloads are left out where a brief leaves them out."""
    id_ = validate.job_id(id_)
    wanted = EventFilter(job_id=id_, **validate.page(after, limit))

    def work(session: Session) -> bytes:
        session.load_one(id_)
        events = session.events(wanted)
        more = events[-1].pos if len(events) == limit else None
        return msgspec.json.encode(HistoryPage(id_, [history_entry(event) for event in events], more))

    query = {"after": wanted.after, "limit": limit}
    return msgspec.json.decode(ledger.step_transactions.read("history", id_, query, work), type=HistoryPage)
