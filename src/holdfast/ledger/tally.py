"""What calls came to, for those who watch: from answers and events to counts. Once a call, after it has been settled."""

from collections import Counter, defaultdict

from holdfast.core.lifecycle import Outcome
from holdfast.core.model import EventType, Micros, Role, StallReason, Status
from holdfast.core.payloads import is_release
from holdfast.errors import FenceLost, HoldfastError, LeaseConflictError, NotClaimable
from holdfast.ledger.answers import Found
from holdfast.ledger.requests import Request, Result
from holdfast.store.base import Made
from holdfast.telemetry import families
from holdfast.telemetry.metrics import Labels, Metrics

EXPIRIES = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED, StallReason.NO_PROGRESS})

Waits = defaultdict[str, list[Micros]]
"""By kind."""
Counts = Counter[tuple[str, Labels]]


def answered(metrics: Metrics, result: Result) -> None:
    """A call was answered. A repetition of one that was counted before has changed nothing and counts no job again."""
    counts: Counts = Counter()
    waits: Waits = defaultdict(list)
    request = result.request
    if result.changed:
        if request.verb == "claim":
            _claims(result, counts, waits)
        elif request.verb == "enqueue":
            _enqueues(result, counts)
        elif request.verb == "heartbeat":
            _beats(result, counts)
        elif request.verb == "append" and not result.outcomes:
            counts[families.LEASE_RENEWALS, ()] += 1
        elif request.verb == "replay" and not isinstance(result.answers[0], HoldfastError) and result.answers[0].is_new:
            counts[families.ENQUEUED, (result.answers[0].job.kind,)] += 1
        for outcome in result.outcomes:
            _events(request, outcome, counts, waits)
    for answer in result.answers:
        if isinstance(answer, HoldfastError):
            _refusal(request, answer, counts)
    if counts:
        metrics.record(counts, waits)


def refused(metrics: Metrics, error: HoldfastError) -> None:
    """A whole call came to nothing."""
    counts: Counts = Counter({(families.REFUSALS, (error.code,)): 1})
    if isinstance(error, FenceLost):
        counts[families.FENCES_LOST, ()] += 1
    metrics.record(counts, {})


def conflict(metrics: Metrics, error: HoldfastError) -> None:
    """A claim by id came to nothing, and it was counted as a refusal."""
    if isinstance(error, LeaseConflictError | NotClaimable) and not isinstance(error, FenceLost):
        metrics.record({(families.CLAIM_CONFLICTS, ()): 1}, {})


def _claims(result: Result, counts: Counts, waits: Waits) -> None:
    for job in result.answers[0]:
        ready_at = job.available_at
        if ready_at < job.created_at:  # noqa: PLR1730 - here max() would be half the cost of counting a batch
            ready_at = job.created_at
        waits[job.kind].append(job.claimed_at - ready_at)
    for kind, found in waits.items():
        counts[families.CLAIMS, (kind,)] += len(found)


def _enqueues(result: Result, counts: Counts) -> None:
    new = [
        command.kind  # type: ignore[attr-defined]
        for command, answer in zip(result.request.commands, result.answers, strict=True)
        if type(answer) is Made or (type(answer) is Found and answer.is_new)
    ]
    for kind, count in Counter(new).items():
        counts[families.ENQUEUED, (kind,)] += count


def _beats(result: Result, counts: Counts) -> None:
    """A beat of a stalled job is evidence of life and renews nothing."""
    renewed = sum(1 for answer in result.answers if getattr(answer, "lease_expires_at", None) is not None)
    if renewed:
        counts[families.LEASE_RENEWALS, ()] += renewed


def _refusal(request: Request, error: HoldfastError, counts: Counts) -> None:
    counts[families.REFUSALS, (error.code,)] += 1
    if isinstance(error, FenceLost):
        counts[families.FENCES_LOST, ()] += 1
    elif request.verb == "claim_job" and isinstance(error, LeaseConflictError | NotClaimable):
        counts[families.CLAIM_CONFLICTS, ()] += 1


def _events(request: Request, outcome: Outcome, counts: Counts, waits: Waits) -> None:
    """What was decided one by one tells by its events what it did, however many they are."""
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
