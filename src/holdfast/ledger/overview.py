"""Summaries of the whole ledger: what its first page shows, kinds, what waits for a person, and sessions of agents."""

from collections import Counter, defaultdict
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import limits
from holdfast.core.doctor import diagnose
from holdfast.core.doctor.model import HealthFinding, ReadyJobs
from holdfast.core.model import ESCALATING, Actor, EventType, Micros, Phase, Status
from holdfast.ledger.charts import Times, times_of
from holdfast.ledger.counted import AsOf, Counted, Rates, sum_statuses
from holdfast.ledger.public import to_datetime
from holdfast.ledger.verbs.explaining import census_of, seen
from holdfast.ledger.verbs.fleet import QueueRecord, letters_left, queue_records
from holdfast.store.fleet import WorkerRow
from holdfast.store.history import OTHER, TotalKey
from holdfast.store.readings import AttentionJob
from holdfast.store.session import Session
from holdfast.watch import tally as rules
from holdfast.watch.tally import Tally, merged

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

FRESH_US, LATE_US = 15_000_000, 45_000_000
"""Workers sign in every 15 s. One that was not seen for three times as long is silent."""
SILENT_NAMED_MAX = 10
DAY_HOURS = 24

# Answers


class WorkerAges(msgspec.Struct, frozen=True):
    """Workers by the time since they were last seen: less than 15 s, less than 45 s, or longer."""

    fresh: int
    late: int
    silent: int
    silent_names: list[str]
    """Ten at most."""


class OldestWaiting(msgspec.Struct, frozen=True):
    queue: str
    ready_since: datetime


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the first page of a dashboard shows. The numbers of jobs are those of `job_totals`."""

    now: datetime
    as_of: AsOf
    complete_from: datetime | None
    counts: dict[str, int]
    """The number of jobs of each status."""
    rates: Rates | None
    """None if less than a minute is counted."""
    failed_24h: int | None
    """Jobs that failed or were dead-lettered in the last 24 full hours and the present one."""
    stalled: int
    dead_letters: int
    """Dead letters that are neither discarded nor replayed, among the newest 10,000."""
    oldest: list[OldestWaiting]
    """The oldest ready job of each queue, longest waiting first, 1,000 at most."""
    queues: list[QueueRecord]
    """The eight queues with the most queued jobs."""
    workers: WorkerAges
    attention: int
    """How many jobs and sinks the list of `attention` has. A job may be in it for several reasons."""
    well: bool
    findings: list[HealthFinding]
    """The findings of `diagnose`, but for the size of the history."""


class ErrorCount(msgspec.Struct, frozen=True):
    error_class: str
    n: int


class KindRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that has jobs, and its last hour."""

    kind: str
    counts: dict[str, int]
    """The number of jobs of each status."""
    last_hour: dict[str, int]
    """The number of events of each type."""
    errors: list[ErrorCount]
    """The most frequent classes of errors of the last hour, ten at most."""
    wait: Times
    run: Times
    workers: int
    """Workers that were seen in the last 45 s and serve this kind."""
    is_other: bool
    """It has no history of its own, so `last_hour`, `wait` and `run` are empty."""
    rates: Rates | None
    """None without a history of its own, or if less than a minute is counted."""
    dead_letters: int
    """Dead letters that are neither discarded nor replayed, among the newest 10,000 of the ledger."""


class AttentionReason(StrEnum):
    """Why something waits for a person."""

    ASSIST_REQUESTED = "assist_requested"
    ESCALATION = "escalation"
    ASSISTED = "assisted"
    COMPENSATION_FAILED = "compensation_failed"
    SINK_DEAD = "sink_dead"


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a sink that waits for a person."""

    reason: AttentionReason
    since: datetime
    job_id: int | None = None
    queue: str | None = None
    kind: str | None = None
    status: Status | None = None
    worker: str | None = None
    by: str | None = None
    """The operator who assists the job, or who noted that its compensation failed."""
    detail: str | None = None
    """The reason of a stall, or the last error of a sink."""
    sink: str | None = None


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent."""

    name: str
    session: str
    focus: int | None
    """The task that it works on."""
    since: datetime | None
    """When it claimed that task. None if it does not hold it."""
    seen_at: datetime
    holding: int
    """The number of tasks that it holds."""
    last: int | None
    """The task before."""
    cursor: int
    """The position up to which the agent was shown events."""


def _ready(session: Session, totals: dict[TotalKey, int]) -> tuple[ReadyJobs, ...]:
    """Return the first ready jobs by queue and kind. Their number is that of all queued jobs."""
    found = session.first_ready(limits.READY_HEADS_MAX, limits.PAGE_MAX)
    return tuple(
        ReadyJobs(one.queue, one.kind, max(one.jobs, totals.get((one.queue, one.kind, Status.QUEUED), 0)), one.since)
        for one in found
    )


def overview_of(counted: Counted, ledger_id: str, store: "StoreHealth") -> Overview:
    """Return the overview of a ledger. `store` is the health of its store."""
    session, totals, as_of = counted.session, counted.totals(), counted.as_of
    census = census_of(session, ready=_ready(session, totals))
    diagnosis = diagnose(ledger_id, store, census)
    since: dict[str, Micros] = {}
    for ready in census.ready:
        since.setdefault(ready.queue, ready.since)  # longest waiting first
    counts = sum_statuses(totals)
    return Overview(
        now=to_datetime(census.now),
        as_of=as_of,
        complete_from=counted.complete_from,
        counts=counts,
        rates=_rates(counted),
        failed_24h=None if as_of.at is None else _failed_lately(counted),
        stalled=counts.get(Status.STALLED, 0),
        dead_letters=census.dead_letters - census.replayed,
        oldest=[OldestWaiting(queue, to_datetime(at)) for queue, at in since.items()],
        queues=_largest(queue_records(counted, since)),
        workers=_ages(session.workers(None, limits.PAGE_MAX), census.now),
        attention=count_waiting(attention_of(session)),
        well=diagnosis.well,
        findings=diagnosis.findings,
    )


def _rates(counted: Counted) -> Rates | None:
    window = counted.rate_window()
    if window is None:
        return None
    return window.rates(rules.sum_tallies(counted.series("minute", "all", OTHER, window.first_minute).values()))


def _failed_lately(counted: Counted) -> int:
    since = rules.slot_of(counted.now, "hour") - DAY_HOURS * rules.HOUR_US
    found = rules.sum_tallies(counted.series("hour", "all", OTHER, since).values())
    return found.count("failed") + found.count("dead_lettered")


def _largest(queues: list[QueueRecord]) -> list[QueueRecord]:
    waiting = sorted(queues, key=lambda one: (-one.counts.get(Status.QUEUED, 0), one.paused_at is None, one.name))
    return waiting[: limits.OVERVIEW_QUEUES_MAX]


def _ages(workers: list[WorkerRow], now: Micros) -> WorkerAges:
    ages = [(now - worker.seen_at, worker.name) for worker in workers]
    silent = sorted({name for age, name in ages if age >= LATE_US})
    fresh = sum(age < FRESH_US for age, _ in ages)
    late = sum(FRESH_US <= age < LATE_US for age, _ in ages)
    return WorkerAges(fresh, late, len(ages) - fresh - late, silent[:SILENT_NAMED_MAX])


def attention_of(session: Session, limit: int = limits.ATTENTION_MAX) -> list[AttentionItem]:
    """Return what waits for a person, oldest first. If there is too much, requests for assistance stay before all others."""
    found = _waiting_for_a_person(session)

    def age(item: AttentionItem) -> tuple[datetime, int]:
        return item.since, item.job_id or 0

    kept = sorted(found, key=lambda item: (item.reason != AttentionReason.ASSIST_REQUESTED, age(item)))[:limit]
    return sorted(kept, key=age)


def count_waiting(items: list[AttentionItem]) -> int:
    """Count the jobs and sinks of a list of what waits for a person."""
    return len({(item.job_id, item.sink) for item in items})


def _waiting_for_a_person(session: Session) -> list[AttentionItem]:
    jobs = session.attention_jobs(limits.SWEEP_MAX)
    policies = session.policies_of({job.policy_id for job in jobs if job.policy_id is not None})
    covered = {id_ for id_, policy in policies.items() if policy.requires_operator_coverage}
    found = [item for job in jobs for item in _job_items(job, is_covered=job.policy_id in covered)]
    compensations: dict[int, AttentionItem] = {}
    for row in session.failed_compensations(limits.ATTENTION_MAX):
        item = AttentionItem(
            reason=AttentionReason.COMPENSATION_FAILED,
            since=to_datetime(row.at),
            job_id=row.id,
            queue=row.queue,
            kind=row.kind,
            status=Status(row.status),
            by=Actor.parse(row.actor).name,
            detail=row.reason,
        )
        compensations.setdefault(row.id, item)
    found += compensations.values()
    found += [
        AttentionItem(reason=AttentionReason.SINK_DEAD, since=to_datetime(sink.dead_at), sink=sink.name, detail=sink.last_error)
        for sink in session.sinks()
        if sink.dead_at is not None
    ]
    return found


def _job_items(job: AttentionJob, *, is_covered: bool) -> list[AttentionItem]:
    """Return why a held or stalled job waits for a person: for none, one or several reasons."""
    about: dict[str, Any] = {
        "job_id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "status": Status(job.status),
        "worker": job.worker,
    }
    found = []
    if job.assist_requested and job.requested_at is not None:
        reason = AttentionReason.ASSIST_REQUESTED
        found.append(AttentionItem(reason=reason, since=to_datetime(job.requested_at), **about))
    if job.phase == Phase.ASSISTED and job.assisted_at is not None:
        by = None if job.assisted_by is None else Actor.parse(job.assisted_by).name
        found.append(AttentionItem(reason=AttentionReason.ASSISTED, since=to_datetime(job.assisted_at), by=by, **about))
    if is_covered and job.stalled_at is not None and job.stall_reason in ESCALATING:
        since, detail = to_datetime(job.stalled_at), job.stall_reason
        found.append(AttentionItem(reason=AttentionReason.ESCALATION, since=since, detail=detail, **about))
    return found


def kinds_of(counted: Counted) -> list[KindRecord]:
    session = counted.session
    since = rules.slot_of(counted.now, "minute") - rules.HOUR_US
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, kind, status), n in counted.totals().items():
        counts[kind][status] += n
    tallies, own = counted.by_name("minute", "kind", since), counted.own_names("kind")
    errors: dict[str, Counter[str]] = defaultdict(Counter)
    for error in session.recent_errors(since, limits.ERRORS_READ_MAX):
        if (name := _error_class(error.type, error.payload)) is not None:
            errors[error.kind][name] += 1
    workers, window = seen(session.workers(LATE_US, limits.PAGE_MAX)), counted.rate_window()
    lately = {} if window is None else counted.by_name("minute", "kind", window.first_minute)
    letters = letters_left(session, "kind")
    return [
        KindRecord(
            kind=kind,
            counts=dict(sorted(of_kind.items())),
            last_hour={name: tallies[kind].count(name) for name in rules.COUNTED},
            errors=[ErrorCount(name, n) for name, n in errors[kind].most_common(limits.KIND_ERRORS_MAX)],
            wait=times_of(tallies[kind].wait),
            run=times_of(merged(tallies[kind].run.values())),
            workers=len({worker.name for worker in workers if worker.kinds is None or kind in worker.kinds}),
            is_other=rules.is_other(kind, own),
            rates=None if window is None or rules.is_other(kind, own) else window.rates(lately.get(kind, Tally())),
            dead_letters=letters[kind],
        )
        for kind, of_kind in sorted(counts.items())
    ]


class _Error(msgspec.Struct):
    error: Any = None
    last_error: Any = None


_errors = msgspec.json.Decoder(_Error)
UNNAMED = "error"
"""The class of an error that has none."""


def _error_class(type_: str, payload: bytes | None) -> str | None:
    """Return the class of the error in an event. A stall without an error has none."""
    found = _errors.decode(payload or b"{}")
    error = found.error if found.error is not None else found.last_error
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return str(error["type"])
    return None if error is None and type_ == EventType.STALLED else UNNAMED


def agents_of(session: Session, limit: int) -> list[AgentSession]:
    """Return the sessions of agents, the most recently active first."""
    return [
        AgentSession(
            name=row.name,
            session=row.session,
            focus=row.focus,
            since=None if row.since_at is None else to_datetime(row.since_at),
            seen_at=to_datetime(row.seen_at),
            holding=row.holding,
            last=row.last,
            cursor=row.cursor,
        )
        for row in session.agent_sessions(limit)
    ]
