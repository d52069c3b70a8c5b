"""The facts that an explanation is made from, and the explanation."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.model import Micros, Phase, Policy, Status

WORKER_SEEN_US = 45_000_000
"""Workers say every 15 s that they are there: one that has not for so long may be gone."""
AGENT_SEEN_US = 3_600_000_000
"""Agents sign in nowhere: where one was at work within this time, they may be expected to take up more."""
AHEAD_MAX = 10_000
"""So many jobs ahead are counted; more than these are as good as these."""


class Situation(StrEnum):
    """Where a job stands, by what has to happen next. Names never change once released."""

    WAITS_FOR_DEPENDENCY = "waits_for_dependency"
    DEPENDENCY_FAILED = "dependency_failed"
    QUEUE_PAUSED = "queue_paused"
    SCHEDULED = "scheduled"
    BACKOFF = "backoff"
    NO_WORKER = "no_worker"
    QUEUED_BEHIND = "queued_behind"
    READY = "ready"
    REQUEUED = "requeued"
    CLAIMED = "claimed"
    RUNNING = "running"
    ASSISTED = "assisted"
    ABORTING = "aborting"
    BEATS_LATE = "beats_late"
    NO_PROGRESS = "no_progress"
    STALL_DUE = "stall_due"
    NOBODY_SWEEPS = "nobody_sweeps"
    NO_SERVER_KEY = "no_server_key"
    RESUME_WINDOW = "resume_window"
    RESUME_DUE = "resume_due"
    REQUEUE_DUE = "requeue_due"
    CANCEL_DUE = "cancel_due"
    EXHAUSTED = "exhausted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"
    REPLAYED = "replayed"
    COMPENSATION_OWED = "compensation_owed"
    COMPENSATION_FAILED = "compensation_failed"


# Facts


class SeenWorker(msgspec.Struct, frozen=True):
    """A worker that has signed in. None where it did not say which queues or kinds it serves."""

    name: str
    seen_at: Micros
    queues: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    keep_ms: dict[str, int] = {}
    """How long it keeps what, where it deletes something."""

    def serves(self, queue: str, kind: str) -> bool:
        return (self.queues is None or queue in self.queues) and (self.kinds is None or kind in self.kinds)


class QueuePause(msgspec.Struct, frozen=True):
    """Since when a queue is paused; by whom, where that is known, and why, where somebody said so."""

    at: Micros
    by: str | None = None
    reason: str | None = None


class LinkedJob(msgspec.Struct, frozen=True):
    """Another job that matters to this one."""

    job_id: int
    status: Status


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows besides the job's own row, all of one moment."""

    policy: Policy
    """What a lease issued now would have."""
    since: Micros
    """When the job came to its status."""
    pause: QueuePause | None = None
    """Of its queue."""
    ahead: int = 0
    """Jobs that a claim on the same queue would take first; AHEAD_MAX where there are at least so many."""
    workers: tuple[SeenWorker, ...] = ()
    agent_at: Micros | None = None
    """When any agent was last at work."""
    sweeper: str | None = None
    """Who has the duty to sweep."""
    unmet: tuple[LinkedJob, ...] = ()
    """The jobs that this one still waits for. Of one that ended for want of them: those that came to nothing, unless replayed."""
    replays: tuple[LinkedJob, ...] = ()
    """Oldest first."""
    undo: LinkedJob | None = None
    """The job that undoes this one."""
    is_asked_to_claim: bool = False
    """Whether it is explained to somebody who could claim it, to whom it is nothing that no worker is there."""
    locked_by: str | None = None
    """The transaction that has its row locked."""
    server_key: bool = True
    """Whether any server key is good. Without one nobody can sign for the system."""


# The explanation


class ProofOfLife(msgspec.Struct, frozen=True):
    at: datetime
    age_ms: int


class NextStep(msgspec.Struct, frozen=True):
    """What happens next if nobody interferes. `at` is the earliest time; None where it depends on somebody."""

    what: str
    at: datetime | None
    by: str


class WhyNotRunning(msgspec.Struct, frozen=True):
    code: Situation
    words: str


class Remedy(msgspec.Struct, frozen=True):
    """A command line that would change it."""

    command: str
    does: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job stands where it stands, what comes next, and what can be done about it, as of `now`."""

    job_id: int
    kind: str
    queue: str
    text: str
    situation: Situation
    status: Status
    phase: Phase | None
    since: datetime
    now: datetime
    attempt: int
    attempts_max: int
    holder: str | None
    incarnation: str | None
    last_holder: str | None
    last_proof_of_life: ProofOfLife | None
    stage: str | None
    progress: int | None
    why_not_running: WhyNotRunning | None
    next: list[NextStep]
    policy: Policy
    """Of the newest lease; before the first, what a lease would have now."""
    last_error: Any
    commands: list[Remedy]


class ExplanationPart(msgspec.Struct, frozen=True):
    """A part of an explanation: what one room found."""

    situation: Situation
    words: tuple[str, ...]
    next: tuple[NextStep, ...] = ()
    commands: tuple[Remedy, ...] = ()
