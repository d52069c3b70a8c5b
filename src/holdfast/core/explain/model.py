"""The facts that an explanation is made from, and the explanation."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from holdfast.core.model import Micros, Phase, Policy, Status

WORKER_SEEN_US = 45_000_000
"""Workers sign in every 15 s. One that has not done so for this long may be gone."""
AGENT_SEEN_US = 3_600_000_000
"""Agents do not sign in. If one was active within this time, agents are expected to claim more tasks."""
AHEAD_MAX = 1_000
"""The count of jobs ahead stops here."""


class Situation(StrEnum):
    """The situation of a job, by what has to happen next. Names never change once released."""

    WAITS_FOR_DEPENDENCY = "waits_for_dependency"
    DEPENDENCY_FAILED = "dependency_failed"
    QUEUE_PAUSED = "queue_paused"
    SCHEDULED = "scheduled"
    POSTPONED = "postponed"
    BACKOFF = "backoff"
    NO_WORKER = "no_worker"
    NO_WORKER_WITH_LABELS = "no_worker_with_labels"
    LIMIT_USED_UP = "limit_used_up"
    LIMIT_TOO_SMALL = "limit_too_small"
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
    NO_SWEEPER = "no_sweeper"
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
    """A worker that has signed in. `queues` or `kinds` is None if it did not say which ones it serves."""

    name: str
    seen_at: Micros
    queues: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    keep_ms: dict[str, int] = {}
    """Its retention times, by what it deletes."""
    labels: frozenset[str] = frozenset()
    """What it has, for jobs that require it. Its own label is left out."""

    def seen_by(self, sees: Callable[[str], bool]) -> "SeenWorker":
        """Return the worker with those of its queues that a reader may see."""
        if self.queues is None:
            return self
        return msgspec.structs.replace(self, queues=frozenset(filter(sees, self.queues)))

    def serves(self, queue: str, kind: str) -> bool:
        return (self.queues is None or queue in self.queues) and (self.kinds is None or kind in self.kinds)


class QueuePause(msgspec.Struct, frozen=True):
    """When a queue was paused, by which actor and for which reason, if these are known."""

    at: Micros
    by: str | None = None
    reason: str | None = None


class LinkedJob(msgspec.Struct, frozen=True):
    """A job that is linked to the explained one, and its status."""

    job_id: int
    status: Status
    queue: str


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a queued job draws on, and what is in use of it. A limit that was removed has no state."""

    name: str
    """The limit and the key, as in messages."""
    limit: str
    units: int
    """What the job draws."""
    used: int
    concurrent: int | None = None
    tokens_max: int | None = None
    """The burst of its rate. None without a rate."""
    next_at: Micros | None = None
    """When the rate allows one job like it to start. None if it allows it now."""
    turn_at: Micros | None = None
    """When the rate allows the job to start, after those ahead of it. None if it allows it now."""

    @property
    def is_too_small(self) -> bool:
        return any(self.units > (most or self.units) for most in (self.concurrent, self.tokens_max))

    @property
    def is_used_up(self) -> bool:
        return self.next_at is not None or (self.concurrent is not None and self.used + self.units > self.concurrent)


class FlowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides when a job with flow control may start."""

    limits: tuple[LimitState, ...] = ()

    def without_keys(self) -> "FlowFacts":
        """Return the facts without the keys of limits."""
        limits = tuple(msgspec.structs.replace(one, name=one.limit) for one in self.limits)
        return msgspec.structs.replace(self, limits=limits)


class Postponement(msgspec.Struct, frozen=True):
    """The last call that postponed a job: when it came, the time that it set, and the latest time that it could have set."""

    at: Micros
    available_at: Micros
    latest_at: Micros


class QueuedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a queued job from being claimed, besides its own row."""

    pause: QueuePause | None = None
    """The pause of its queue."""
    ahead: int = 0
    """Jobs of its subqueue and of its priority that a claim would take first. AHEAD_MAX if there are at least so many."""
    has_higher: bool = False
    """Whether jobs of a higher priority wait in its queue."""
    takes_turns: bool = False
    """Whether its queue has subqueues."""
    flow: FlowFacts | None = None
    """None for a job without flow control."""
    workers: tuple[SeenWorker, ...] = ()
    agent_at: Micros | None = None
    """When any agent was last active."""
    declared_queue: str | None = None
    """The queue that the handler of its kind declares."""
    unmet: tuple[LinkedJob, ...] = ()
    """The jobs that this one still waits for. If it ended because of them: those that did not succeed and were not replayed."""
    hidden: int = 0
    """How many more such jobs there are, in queues that the reader may not see."""
    postponed: Postponement | None = None
    is_asked_to_claim: bool = False
    """Whether the reader could claim the job itself, so that a missing worker is not an obstacle."""

    def seen_by(self, sees: Callable[[str], bool], *, hides_keys: bool = False) -> Self:
        """Return the facts for a reader of some queues: jobs and names of other queues are left out.

        With `hides_keys`, the keys of limits are left out, which are arguments of the job.
        """
        unmet = tuple(link for link in self.unmet if sees(link.queue))
        return msgspec.structs.replace(
            self,
            unmet=unmet,
            hidden=len(self.unmet) - len(unmet),
            workers=tuple(worker.seen_by(sees) for worker in self.workers),
            declared_queue=self.declared_queue if self.declared_queue is not None and sees(self.declared_queue) else None,
            flow=None if self.flow is None else self.flow.without_keys() if hides_keys else self.flow,
        )


class JobFacts(QueuedFacts, frozen=True, kw_only=True):
    """Facts besides the job's own row, all read in one transaction."""

    policy: Policy
    """The policy of a lease issued now."""
    since: Micros
    """When the job got its status."""
    sweeper: str | None = None
    """The worker that has the duty to sweep."""
    replays: tuple[LinkedJob, ...] = ()
    """Oldest first."""
    undo: LinkedJob | None = None
    """The job that undoes this one."""
    locked_by: str | None = None
    """The transaction that has its row locked."""
    server_key: bool = True
    """Whether any server key is valid. Without one, nothing can be signed for the system."""

    def seen_by(self, sees: Callable[[str], bool], *, hides_keys: bool = False) -> Self:
        """Return the facts for a reader of some queues."""
        shown = super().seen_by(sees, hides_keys=hides_keys)
        replays = tuple(link for link in self.replays if sees(link.queue))
        undo = self.undo if self.undo is not None and sees(self.undo.queue) else None
        return msgspec.structs.replace(shown, replays=replays, undo=undo)


# The explanation


class ProofOfLife(msgspec.Struct, frozen=True):
    at: datetime
    age_ms: int


class NextStep(msgspec.Struct, frozen=True):
    """What happens next without a further command. `at` is the earliest time, or None if it depends on an actor."""

    what: str
    at: datetime | None
    by: str


class WhyNotRunning(msgspec.Struct, frozen=True):
    code: Situation
    words: str


class Remedy(msgspec.Struct, frozen=True):
    """A command line that may help, and what it does."""

    command: str
    does: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is in its state at `now`, what happens next, and what can be done about it."""

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
    """The policy of the newest lease. Before the first lease, the policy that a lease issued now would have."""
    last_error: Any
    commands: list[Remedy]


class ExplanationPart(msgspec.Struct, frozen=True):
    """A part of an explanation: the situation, its text, the next steps and the remedies."""

    situation: Situation
    words: tuple[str, ...]
    next: tuple[NextStep, ...] = ()
    commands: tuple[Remedy, ...] = ()
