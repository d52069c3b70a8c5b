"""Shapes of `--json` answers about jobs, events, queues, dead letters and tasks."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.agent.tasks import Task
from holdfast.cli.job_views import DeadLetterView, JobView
from holdfast.core.model import EventType, Phase, Status
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import Event


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object with these fields and no others."""


class JobAnswer(Shape, frozen=True):
    job: JobView
    waits_in_vain_for: list[int]
    """The jobs that it waits for which failed, were cancelled or were dead-lettered, among the first 100."""


class EnqueueAnswer(Shape, frozen=True):
    job: JobView
    is_new: bool
    """False if a job with the same dedupe key existed already."""


class EnqueueManyAnswer(Shape, frozen=True):
    job_ids: list[int]
    new: int


class JobListAnswer(Shape, frozen=True):
    jobs: list[JobView]
    next_after: int | None
    """The `--after` of the next page; null if there is none."""
    counts: dict[Status, int] | None
    """The number of jobs of each status, in all queues or in that of `--queue`. Other filters do not apply. Null if the newest
    id is above 100,000 and `--counts` was not given, because counting reads every job."""


class CancelledJob(Shape, frozen=True):
    job_id: int
    status: Status
    rev: int
    is_over: bool
    """False if its holder was asked to stop."""
    changed: bool
    """False if it was cancelled, or its holder was asked to stop, before."""


class CancelAnswer(Shape, frozen=True):
    cancelled: list[CancelledJob]


class CancelAllAnswer(CancelAnswer, frozen=True):
    """With `--all`."""

    count: int
    """The number of jobs that were cancelled or asked to stop; with `--dry-run`, that would be."""
    skipped: int
    """The number of jobs that were claimed or changed after they were listed."""
    dry_run: bool


class PlacedJob(Shape, frozen=True):
    job_id: int
    queue: str
    priority: int
    available_at: datetime
    rev: int


class PlacementAnswer(Shape, frozen=True):
    jobs: list[PlacedJob]


class AssistAnswer(Shape, frozen=True):
    job_id: int
    status: Status
    phase: Phase | None
    rev: int


class ReplayedJob(Shape, frozen=True):
    job_id: int
    replayed_as: int
    is_new: bool


class SkippedReplay(Shape, frozen=True):
    job_id: int
    replayed_as: int
    """The newest finished replay that counts."""
    status: Status
    """The status of that replay."""


class ReplayAnswer(Shape, frozen=True):
    replayed: list[ReplayedJob]
    skipped: int
    """The number of jobs that were replayed before and were not replayed again."""
    skipped_jobs: list[SkippedReplay]
    """The skipped jobs that were given by id; empty with `--all`."""


class DeadLetterReplayAnswer(ReplayAnswer, frozen=True):
    discarded: list[int]
    """The dead letters that `--discard` discarded."""


class EventsAnswer(Shape, frozen=True):
    events: list[Event]


class EventPageAnswer(EventsAnswer, frozen=True):
    next_after: int | None


class EventAnswer(Shape, frozen=True):
    event: Event


class DialectEventsAnswer(Shape, frozen=True):
    dialect: Dialect
    events: list[dict[str, Any]]
    """Each with the names and fields of the dialect."""


class DialectEventAnswer(Shape, frozen=True):
    dialect: Dialect
    event: dict[str, Any]


class QueueEntry(Shape, frozen=True):
    name: str
    paused_at: datetime | None


class QueueCountsEntry(QueueEntry, frozen=True):
    paused_by: str | None
    pause_reason: str | None
    ready_since: datetime | None
    """When the oldest claimable job became available, even if the queue is paused; null if there is none."""
    counts: dict[str, int]
    """The number of jobs of each status."""


class QueueAnswer(Shape, frozen=True):
    queue: QueueEntry


class QueueListAnswer(Shape, frozen=True):
    queues: list[QueueCountsEntry]


class ReplayEntry(Shape, frozen=True):
    job_id: int
    status: Status


class DeadLetterEntry(DeadLetterView, frozen=True, kw_only=True):
    job_id: int
    kind: str
    queue: str
    rev: int
    dead_lettered_at: datetime | None
    note: str | None
    replayed_as: ReplayEntry | None
    """Its newest replay."""


class HistoryEntry(Shape, frozen=True):
    rev: int
    type: EventType
    at: datetime
    actor: str
    attempt: int
    reason: str | None


class DeadLetterAnswer(DeadLetterEntry, frozen=True, kw_only=True):
    args: Any
    history: list[HistoryEntry]
    replays: list[ReplayEntry]


class DeadLetterListAnswer(Shape, frozen=True):
    dead_letters: list[DeadLetterEntry]
    next_after: int | None


class DiscardAnswer(Shape, frozen=True):
    discarded: list[int]


class TaskAnswer(Shape, frozen=True):
    task: Task


class TaskListAnswer(Shape, frozen=True):
    tasks: list[Task]
    next_after: int | None


class TaskOutcomeCounts(Shape, frozen=True):
    """The number of tasks that `task run` took, by outcome."""

    succeeded: int
    failed: int
    released: int
    lost: int


class TaskRunAnswer(Shape, frozen=True):
    tasks: TaskOutcomeCounts
