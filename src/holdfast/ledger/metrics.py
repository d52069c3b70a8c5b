"""Counts and times: those of this process from its calls, and those of the whole ledger from its events."""

import threading
from collections import Counter, defaultdict

from holdfast.core.decide import Decision
from holdfast.core.model import EventType, Micros, Role, StallReason, Status
from holdfast.core.payloads import is_release
from holdfast.errors import FenceLost, HoldfastError, LeaseConflictError, NotClaimable
from holdfast.ledger.requests import FoundJob, Request, Result
from holdfast.store.base import Store
from holdfast.store.outbox import EndedJob
from holdfast.store.session import EnqueuedRow, Session
from holdfast.telemetry import families
from holdfast.telemetry.metrics import Labels, Metrics, Readings

EXPIRIES = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED, StallReason.NO_PROGRESS})

Waits = defaultdict[str, list[Micros]]
"""By kind."""
Counts = Counter[tuple[str, Labels]]


def count_answers(metrics: Metrics, result: Result) -> None:
    """Count the answers of a call. A repeated request has changed nothing, so its jobs are not counted again."""
    counts: Counts = Counter()
    waits: Waits = defaultdict(list)
    request = result.request
    if result.changed:
        if request.verb == "claim":
            _count_claims(result, counts, waits)
        elif request.verb == "enqueue":
            _count_enqueues(result, counts)
        elif request.verb == "heartbeat":
            _count_beats(result, counts)
        elif request.verb == "append" and not result.outcomes:
            counts[families.LEASE_RENEWALS, ()] += 1
        elif request.verb in ("replay", "replay_jobs"):
            _count_replays(result, counts)
        for outcome in result.outcomes:
            _count_events(request, outcome, counts, waits)
    for answer in result.answers:
        if isinstance(answer, HoldfastError):
            _count_refused(request, answer, counts)
    if counts:
        metrics.record(counts, waits)


def count_refusal(metrics: Metrics, error: HoldfastError) -> None:
    """Count a call that failed as a whole."""
    counts: Counts = Counter({(families.REFUSALS, (error.code,)): 1})
    if isinstance(error, FenceLost):
        counts[families.FENCES_LOST, ()] += 1
    metrics.record(counts, {})


def count_conflict(metrics: Metrics, error: HoldfastError) -> None:
    """Count a failed claim by id as a conflict. It was already counted as a refusal."""
    if isinstance(error, LeaseConflictError | NotClaimable) and not isinstance(error, FenceLost):
        metrics.record({(families.CLAIM_CONFLICTS, ()): 1}, {})


def _count_claims(result: Result, counts: Counts, waits: Waits) -> None:
    for kind, found in result.answers[0].waits().items():
        waits[kind] = found
        counts[families.CLAIMS, (kind,)] += len(found)


def _count_enqueues(result: Result, counts: Counts) -> None:
    new = [
        command.kind  # type: ignore[attr-defined]
        for command, answer in zip(result.request.commands, result.answers, strict=True)
        if type(answer) is EnqueuedRow or (type(answer) is FoundJob and answer.is_new)
    ]
    for kind, count in Counter(new).items():
        counts[families.ENQUEUED, (kind,)] += count


def _count_replays(result: Result, counts: Counts) -> None:
    for answer in result.answers:
        if not isinstance(answer, HoldfastError) and answer.is_new:
            counts[families.ENQUEUED, (answer.job.kind,)] += 1


def _count_beats(result: Result, counts: Counts) -> None:
    """Count renewed leases. A heartbeat of a stalled job renews nothing."""
    renewed = sum(1 for answer in result.answers if getattr(answer, "lease_expires_at", None) is not None)
    if renewed:
        counts[families.LEASE_RENEWALS, ()] += renewed


def _count_refused(request: Request, error: HoldfastError, counts: Counts) -> None:
    counts[families.REFUSALS, (error.code,)] += 1
    if isinstance(error, FenceLost):
        counts[families.FENCES_LOST, ()] += 1
    elif request.verb == "claim_job" and isinstance(error, LeaseConflictError | NotClaimable):
        counts[families.CLAIM_CONFLICTS, ()] += 1


def _count_events(request: Request, outcome: Decision, counts: Counts, waits: Waits) -> None:
    """Count the events of a command that was decided by itself."""
    job = outcome.job
    for event in outcome.events:
        match event.type:
            case EventType.CLAIMED:
                counts[families.CLAIMS, (job.kind,)] += 1
                if event.from_status is Status.QUEUED:
                    waits[job.kind].append(event.received_at - max(job.available_at, job.created_at))
            case EventType.HEARTBEAT if request.verb != "heartbeat":
                counts[families.LEASE_RENEWALS, ()] += 1
            case EventType.STALLED if event.actor.role is Role.SYSTEM and event.reason in EXPIRIES:
                counts[families.LEASE_EXPIRIES, (event.reason,)] += 1
            case EventType.REQUEUED if not is_release(event):
                counts[families.RETRIES, (job.kind,)] += 1
            case EventType.FAILED:
                counts[families.FAILURES, (job.kind,)] += 1
            case EventType.DEAD_LETTERED:
                counts[families.DEAD_LETTERS, (job.kind, event.reason or "")] += 1


PAGE = 10_000

Times = defaultdict[Labels, list[Micros]]


class Totals:
    """Counts of the ledger's events since the first read. Each read adds only what was committed after the last one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._metrics = Metrics(families.LEDGER_COUNTERS, families.LEDGER_HISTOGRAMS)
        self._pos: int | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def read(self, now: float, max_age: float) -> Readings:
        """Return the counts. `now` is a monotonic time. Counts that are less than `max_age` seconds old are not read again."""
        with self._lock:
            if now - self._read_at >= max_age:
                self._update(self._store.stable_pos())
                self._read_at = now
            return self._metrics.read()

    def _update(self, until: int) -> None:
        after = until if self._pos is None else self._pos
        while after < until:
            after = self._add(after, until)
            self._pos = after
        self._pos = until

    def _add(self, after: int, until: int) -> int:
        """Count one page of jobs that ended, and the events up to there."""

        def work(session: Session) -> tuple[list[EndedJob], int, dict[str, int]]:
            ended = session.ended_jobs(after, until, PAGE)
            end = ended[-1].pos if len(ended) == PAGE else until
            return ended, end, session.event_types(after, end)

        ended, end, events = self._store.read(work)
        counts: Counter[tuple[str, Labels]] = Counter()
        waits: Times = defaultdict(list)
        runs: Times = defaultdict(list)
        for type_, count in events.items():
            counts[families.LEDGER_EVENTS, (type_,)] += count
        for job in ended:
            counts[families.LEDGER_ENDED, (job.kind, job.outcome)] += 1
            if job.claimed_at is not None:
                waits[job.kind,].append(max(0, job.claimed_at - max(job.available_at, job.created_at)))
            if job.started_at is not None and job.finished_at is not None:
                runs[job.kind, job.outcome].append(max(0, job.finished_at - job.started_at))
        self._metrics.add(counts, {families.LEDGER_WAIT: waits, families.LEDGER_RUN: runs})
        return end
