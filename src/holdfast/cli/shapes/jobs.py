"""Answers about jobs, their events and their queues."""

from datetime import datetime
from typing import Any

from holdfast.cli.jobs import DeadLetterView, JobView
from holdfast.cli.shapes.base import Shape
from holdfast.core.model import EventType, Phase, Status
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import Event


class OneJob(Shape, frozen=True):
    job: JobView
    waits_in_vain_for: list[int]
    """Those of the jobs that it waits for which failed, were cancelled or dead-lettered. Of the first 100."""


class Enqueued(Shape, frozen=True):
    job: JobView
    is_new: bool
    """False where a dedupe key found a job that was there already."""


class EnqueuedMany(Shape, frozen=True):
    job_ids: list[int]
    new: int


class Jobs(Shape, frozen=True):
    jobs: list[JobView]
    next_after: int | None
    """What to give to `--after` for the next page; null where there is none."""
    counts: dict[Status, int] | None
    """How many jobs of each status there are, in all queues or in that of `--queue`. Other options do not narrow it down. Null
    where the newest id is above 100,000 and `--counts` was not given: counting reads every job."""


class Cancelled(Shape, frozen=True):
    job_id: int
    status: Status
    rev: int
    is_over: bool
    """False where its holder was asked to stop."""
    changed: bool
    """False where it was cancelled, or its holder was asked, already."""


class CancelledMany(Shape, frozen=True):
    cancelled: list[Cancelled]


class CancelledAll(CancelledMany, frozen=True):
    """With `--all`."""

    count: int
    """How many were cancelled or asked to stop; with `--dry-run`, how many would be."""
    skipped: int
    """How many were claimed or changed between being found and being cancelled."""
    dry_run: bool


class Placed(Shape, frozen=True):
    job_id: int
    queue: str
    priority: int
    available_at: datetime
    rev: int


class PlacedMany(Shape, frozen=True):
    jobs: list[Placed]


class Assisted(Shape, frozen=True):
    job_id: int
    status: Status
    phase: Phase | None
    rev: int


class Replayed(Shape, frozen=True):
    job_id: int
    replayed_as: int
    is_new: bool


class ReplayedBefore(Shape, frozen=True):
    job_id: int
    replayed_as: int
    """The newest finished replay that counts."""
    status: Status
    """Of that replay."""


class ReplayedMany(Shape, frozen=True):
    replayed: list[Replayed]
    skipped: int
    """How many have been replayed before and were not replayed again."""
    skipped_jobs: list[ReplayedBefore]
    """Those of them that were named by their ids; empty with `--all`."""


class LettersReplayed(ReplayedMany, frozen=True):
    discarded: list[int]
    """Those that were put aside, with `--discard`."""


class Events(Shape, frozen=True):
    events: list[Event]


class EventPage(Events, frozen=True):
    next_after: int | None


class OneEvent(Shape, frozen=True):
    event: Event


class EventsInDialect(Shape, frozen=True):
    dialect: Dialect
    events: list[dict[str, Any]]
    """Each with the names and fields of the dialect."""


class OneEventInDialect(Shape, frozen=True):
    dialect: Dialect
    event: dict[str, Any]


class Queue(Shape, frozen=True):
    name: str
    paused_at: datetime | None


class Counted(Queue, frozen=True):
    paused_by: str | None
    pause_reason: str | None
    ready_since: datetime | None
    """Since when the first of those that could be claimed could be, were the queue open; null where there is none."""
    counts: dict[str, int]
    """How many jobs of each status."""


class OneQueue(Shape, frozen=True):
    queue: Queue


class Queues(Shape, frozen=True):
    queues: list[Counted]


class Followed(Shape, frozen=True):
    job_id: int
    status: Status


class Letter(DeadLetterView, frozen=True, kw_only=True):
    job_id: int
    kind: str
    queue: str
    rev: int
    dead_lettered_at: datetime | None
    note: str | None
    replayed_as: Followed | None
    """Its newest replay."""


class Step(Shape, frozen=True):
    rev: int
    type: EventType
    at: datetime
    actor: str
    attempt: int
    reason: str | None


class LetterInFull(Letter, frozen=True, kw_only=True):
    args: Any
    history: list[Step]
    replays: list[Followed]


class Letters(Shape, frozen=True):
    dead_letters: list[Letter]
    next_after: int | None


class Discarded(Shape, frozen=True):
    discarded: list[int]
