"""Counts and times of this process, from its calls."""

from collections import Counter, defaultdict

from holdfast.core.decide import Decision
from holdfast.core.model import EventType, Micros, Role, StallReason, Status
from holdfast.core.payloads import is_release
from holdfast.errors import FenceLost, HoldfastError, LeaseConflictError, NotClaimable
from holdfast.ledger.requests import FoundJob, Request, Result
from holdfast.store.session import EnqueuedRow
from holdfast.watch import families
from holdfast.watch.process import Labels, Metrics

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
        elif request.verb == "replay":
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
