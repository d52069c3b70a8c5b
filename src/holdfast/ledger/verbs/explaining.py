"""Verbs that explain why a job is in its state, and whether the ledger is healthy."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.doctor.model import COUNT_MAX, History, LedgerHealth, ReadyJobs, RoutedJobs, SinkHealth, Skew
from holdfast.core.explain.model import (
    AHEAD_MAX,
    FlowFacts,
    JobFacts,
    LimitState,
    LinkedJob,
    Postponement,
    QueuedFacts,
    QueuePause,
    SeenWorker,
)
from holdfast.core.flow import LimitKey
from holdfast.core.limits import DUTY_MS_MAX, EVENTS_COUNTED_MAX, GROUPED_LETTERS_MAX, PAGE_MAX
from holdfast.core.model import Flow, JobRecord, Micros, ReasonCode, Status
from holdfast.core.schedule import LATE_US
from holdfast.core.undo import has_undo_due
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.sweep import SWEEP_DUTY
from holdfast.ledger.verbs.services import HISTORY_DUTY, SEAL_DUTY, relay_duty
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyRole
from holdfast.store.base import Store
from holdfast.store.fleet import WorkerRow
from holdfast.store.jobs import JobFilter
from holdfast.store.outbox import SinkPosition
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.core.doctor import Diagnosis
    from holdfast.core.explain import Explanation
    from holdfast.core.explain.model import WhyNotRunning


def facts_of(
    session: Session,
    job: JobRecord,
    now: Micros,
    locked_by: str | None = None,
    *,
    to_claim: bool = False,
    since: Micros | None = None,
) -> JobFacts:
    """Read the facts about a job from one snapshot. Facts that do not matter for the job's status are not read.

    A caller that has read the job's events knows since when the job has its status.
    """
    queued, live = job.status is Status.QUEUED, job.finished_at is None
    if queued:
        waiting = queued_facts(session, [job], now, to_claim=to_claim)[job.id]
    else:
        waiting = QueuedFacts(is_asked_to_claim=to_claim, unmet=_broken(session, job))
    return JobFacts(
        **{name: getattr(waiting, name) for name in QueuedFacts.__struct_fields__},
        policy=session.policy_of(job),
        since=session.status_since(job) if since is None else since,
        sweeper=sweeper_of(session, now),
        replays=() if live else tuple(_linked_jobs(found) for found in session.jobs(JobFilter(replay_of=job.id, limit=PAGE_MAX))),
        undo=None if live else _undo(session, job),
        locked_by=locked_by,
        server_key=has_server_key(session) if job.policy is not None and job.policy.signed != "none" else True,
    )


def queued_facts(session: Session, jobs: Sequence[JobRecord], now: Micros, *, to_claim: bool = False) -> dict[int, QueuedFacts]:
    """Read what keeps queued jobs from being claimed.

    What jobs share is read once. Statements are run for each queue and priority, for each key of a limit, and for each delayed
    job with a dedupe key.
    """
    is_for_one = any(job.flow is not None and job.flow.for_worker for job in jobs)
    workers = tuple(seen(session.workers(None, PAGE_MAX))) if not to_claim or is_for_one else ()
    pauses, awaited = pauses_of(session), {id_ for job in jobs for id_ in job.waits_for}
    heads = {head.id: LinkedJob(head.id, Status(head.status), head.queue) for head in session.job_heads(sorted(awaited))}
    ahead: dict[int, int] = {}
    higher: dict[tuple[str, int], bool] = {}
    turns: Collection[str] = ()
    agent_at, declared = None, {}
    if not to_claim:
        queues = sorted({job.queue for job in jobs})
        ahead, turns = session.ahead(jobs, AHEAD_MAX), session.flow_queues(len(queues), queues)
        higher = {place: session.has_higher(*place) for place in {(job.queue, job.priority) for job in jobs}}
        agent_at, declared = session.last_agent(), {one.kind: one.queue for one in session.declarations()}
    keys: dict[tuple[str, str], LimitKey | None] = {}
    return {
        job.id: QueuedFacts(
            pause=pauses.get(job.queue),
            ahead=ahead.get(job.id, 0),
            has_higher=higher.get((job.queue, job.priority), False),
            takes_turns=job.queue in turns,
            flow=None if job.flow is None else _flow_facts(session, job.flow, ahead.get(job.id, 0), now, keys),
            workers=workers if not to_claim or (job.flow is not None and job.flow.for_worker) else (),
            agent_at=agent_at,
            declared_queue=declared.get(job.kind),
            unmet=tuple(heads[id_] for id_ in sorted(job.waits_for) if id_ in heads),
            postponed=_postponement(session, job, now),
            is_asked_to_claim=to_claim,
        )
        for job in jobs
    }


def _flow_facts(session: Session, flow: Flow, ahead: int, now: Micros, keys: dict[tuple[str, str], LimitKey | None]) -> FlowFacts:
    """Read the limits that a job draws on, and when their rates allow it to start after the jobs ahead of it in its subqueue.

    `keys` has the states that were read before.
    """
    found = []
    for draw in flow.limits:
        place = draw.limit, draw.key
        if place not in keys:
            keys[place] = session.limit_state(*place)
        if (state := keys[place]) is not None:
            found.append(_limit_state(state, draw.units, draw.units * ahead, now))
    return FlowFacts(limits=tuple(found))


def _limit_state(key: LimitKey, units: int, before: int, now: Micros) -> LimitState:
    """Return the state of a limit for a job of so many units. Jobs that come first draw `before` units."""
    body = key.body
    assert body is not None
    key.refill(now)
    turn_at = None if body.rate is None or body.refuses(units) else key.allows_at(units + before)
    return LimitState(
        name=key.name,
        limit=key.limit,
        units=units,
        used=key.used,
        concurrent=body.concurrent,
        tokens_max=None if body.rate is None else body.tokens_max,
        next_at=None if turn_at is None else key.next_at(units),
        turn_at=None if turn_at is None or turn_at <= now else turn_at,
    )


def _postponement(session: Session, job: JobRecord, now: Micros) -> Postponement | None:
    is_delayed = max(job.available_at, job.wanted_at or 0) > now
    found = session.last_postponed(job.id) if is_delayed and not job.attempt and job.dedupe_key is not None else None
    return None if found is None else Postponement(found[0], found[1].available_at, found[1].latest_at)


def _linked_jobs(job: JobRecord) -> LinkedJob:
    return LinkedJob(job.id, job.status, job.queue)


def _broken(session: Session, job: JobRecord) -> tuple[LinkedJob, ...]:
    """Return the failed dependencies that ended this job and were not replayed, by id."""
    if job.reason_code != ReasonCode.DEPENDENCY_UNAVAILABLE or not job.depends_on:
        return ()
    states = session.dependency_states(job.depends_on).values()
    failed = session.load([one.id for one in states if one.has_failed and one.replay is None], lock=False)
    return tuple(_linked_jobs(failed[id_]) for id_ in sorted(failed))


def _undo(session: Session, job: JobRecord) -> LinkedJob | None:
    if not has_undo_due(job) and job.note is None:
        return None
    found = session.undo_job(job)
    return None if found is None else _linked_jobs(found)


def sweeper_of(session: Session, now: Micros) -> str | None:
    return _holder_of(session, SWEEP_DUTY, now)


def _holder_of(session: Session, name: str, now: Micros) -> str | None:
    """Return the holder of a duty. A duty that ends too late was taken while the clock was ahead, and counts as free."""
    duty = session.duty(name)
    in_time = duty is not None and now <= duty.expires_at <= now + 2 * DUTY_MS_MAX * 1_000
    return duty.holder if duty is not None and in_time else None


def has_server_key(session: Session) -> bool:
    return any(key.role == KeyRole.SERVER and key.valid() for key in KeyBook(session.key_log()))


def pauses_of(session: Session) -> dict[str, QueuePause]:
    """Return the paused queues, by name."""
    return {found.queue: QueuePause(found.at, found.by, found.reason) for found in session.pauses()}


def seen(found: Iterable[WorkerRow]) -> list[SeenWorker]:
    return [_seen(record) for record in found]


def _seen(record: WorkerRow) -> SeenWorker:
    """Read a worker's description of itself. It may have any form: a value that is not a list of names is ignored."""
    body = msgspec.json.decode(record.body)
    return SeenWorker(
        record.name,
        record.seen_at,
        _names(body.get("queues")),
        _names(body.get("kinds")),
        _numbers(body.get("keep")),
        _names(body.get("labels")) or frozenset(),
    )


def _numbers(given: object) -> dict[str, int]:
    return {name: value for name, value in given.items() if type(value) is int} if isinstance(given, dict) else {}


def _names(given: object) -> frozenset[str] | None:
    return frozenset(name for name in given if isinstance(name, str)) if isinstance(given, list) else None


SKEW_TRIES = 5
HISTORY_US = 24 * 3_600_000_000
"""The time over which the growth of the history is measured."""


def skew_of(store: Store, clock: Callable[[], datetime]) -> Skew:
    """Measure how far the ledger's clock is from `clock`. The fastest of several round trips is the most exact."""
    return min((_skew_once(store, clock) for _ in range(SKEW_TRIES)), key=lambda skew: skew.round_trip_us)


def _skew_once(store: Store, clock: Callable[[], datetime]) -> Skew:
    before = validate.moment("clock", clock())
    there = store.read_statement(lambda session: session.now())
    after = validate.moment("clock", clock())
    return Skew(there - (before + after) // 2, after - before)


def history_of(session: Session, now: Micros) -> History | None:
    """Estimate the size and growth of the history. Costs about 2 log n lookups.

    It uses the first and the last position, the position of a day ago, and the store's own estimates.
    """
    first = session.event_from(0)
    if first is None:
        return None
    last_pos, (rows, bytes_) = session.last_pos(), session.size()
    recent_us = max(1, min(HISTORY_US, now - first.at))
    low, high = first.pos, last_pos + 1
    while low < high:
        middle = (low + high) // 2
        found = session.event_from(middle)
        if found is None or found.at >= now - recent_us:
            high = middle
        else:
            low = found.pos + 1
    drawn = last_pos - first.pos + 1
    events = min(drawn, session.events_after(0) if rows is None else rows)
    recent = session.events_after(low - 1)
    if recent == EVENTS_COUNTED_MAX:
        recent = max(recent, round(events * (last_pos - low + 1) / drawn))
    return History(events=events, first_at=first.at, bytes=bytes_, recent=min(events, recent), recent_us=recent_us)


def census_of(session: Session, *, ready: tuple[ReadyJobs, ...] | None = None) -> LedgerHealth:
    """Read the facts about the ledger's health from one snapshot.

    A caller that has no time to read all ready jobs gives some of them. The size of the history is then not read either.
    """
    from holdfast.core.doctor.checks import live_workers
    from holdfast.core.doctor.flow import find_unroutable

    now, sealed = session.now(), session.last_head()
    letters = session.count_letters(GROUPED_LETTERS_MAX)
    signed, counted = _signed_policies(session), session.history_progress()
    workers, routed = tuple(seen(session.workers(None, PAGE_MAX))), tuple(session.routed_jobs(COUNT_MAX))
    unroutable = [one.found for one in find_unroutable(routed, live_workers(workers, now))]
    return LedgerHealth(
        now=now,
        due=len(session.due(0, COUNT_MAX).ids),
        owing=sum(map(len, session.unfinished_jobs(COUNT_MAX, 0))),
        sweeper=sweeper_of(session, now),
        paused=pauses_of(session),
        ready=tuple(session.ready(PAGE_MAX)) if ready is None else ready,
        routable=_routable(session, unroutable, ready) if unroutable else None,
        workers=workers,
        agent_at=session.last_agent(),
        routed=routed,
        limits=tuple(session.limit_troubles(COUNT_MAX)),
        sinks=tuple(_sink_health(session, place, now) for place in session.sinks()),
        schedules=tuple(session.troubled_schedules(now - LATE_US, SCHEDULES_NAMED_MAX)),
        groups=tuple(session.troubled_groups(now - GROUP_OPEN_US, GROUPS_NAMED_MAX)),
        failed=session.failed_left(COUNT_MAX),
        in_vain=session.count_waiting_for_failed(COUNT_MAX),
        dead_letters=sum(row.n for row in letters),
        replayed=sum(row.replayed for row in letters),
        signed=tuple(signed),
        server_key=has_server_key(session) if signed else False,
        unsealed=0 if sealed is None else session.events_after(sealed.pos),
        sealed_pos=None if sealed is None else sealed.pos,
        sealed_at=0 if sealed is None else sealed.at,
        history=history_of(session, now) if ready is None else None,
        sealer=None if sealed is None else _holder_of(session, SEAL_DUTY, now),
        uncounted=None if counted.at is None else session.events_after(counted.pos),
        counter=None if counted.at is None else _holder_of(session, HISTORY_DUTY, now),
    )


def _routable(session: Session, unroutable: Iterable[RoutedJobs], ready: tuple[ReadyJobs, ...] | None) -> tuple[ReadyJobs, ...]:
    """Return the ready jobs without those that no running worker may have. If `ready` has only some, these are subtracted."""
    if ready is None:
        return tuple(session.ready_elsewhere([one.route for one in unroutable], PAGE_MAX))
    less = Counter[tuple[str, str]]()
    for one in unroutable:
        less[one.queue, one.kind] += one.jobs
    counted = [msgspec.structs.replace(one, jobs=one.jobs - less[one.queue, one.kind]) for one in ready]
    return tuple(one for one in counted if one.jobs > 0)


def _sink_health(session: Session, place: SinkPosition, now: Micros) -> SinkHealth:
    first = session.event_from(place.pos + 1)
    return SinkHealth(
        place.name,
        place.failures,
        place.dead_at is not None,
        place.last_error,
        _holder_of(session, relay_duty(place.name), now),
        0 if first is None else session.events_after(place.pos),
        0 if first is None else first.at,
    )


def _signed_policies(session: Session) -> list[str]:
    """Return the kinds and tiers with a policy that requires signed events."""
    found = {f"kind {one.kind}": one.settings.signed for one in session.declarations()}
    found |= {f"{scope} {name}": layer.signed for scope, name, layer in session.all_settings() if layer.signed is not None}
    return sorted(name for name, signed in found.items() if signed not in (None, "none"))


SCHEDULES_NAMED_MAX = 20
"""Schedules that a diagnosis names."""
GROUPS_NAMED_MAX = 20
"""Groups that a diagnosis names."""
GROUP_OPEN_US = 86_400_000_000
"""An open group that was made longer ago, and whose jobs have all ended, was probably forgotten."""
LOCKED_SECONDS = 1.0
"""Shorter locks on a job are normal and not reported."""


class ExplainVerbs(LedgerBase):
    def explain(self, job_id: int, *, to_claim: bool = False) -> "Explanation":
        """Explain why a job is in its state, what happens next and when, and what can be done about it. Nothing is changed.

        `to_claim` is for a caller that wants to claim the job itself. The explanation then leaves out whether there are workers,
        and which jobs they would claim first.
        """
        return self._explain(job_id, to_claim=to_claim, sees=None)

    def _explain(
        self, job_id: int, *, to_claim: bool, sees: Callable[[str], bool] | None, hides_keys: bool = False
    ) -> "Explanation":
        from holdfast.core.explain import explain

        job_id = validate.job_id(job_id)
        locked_by = self._store.lock_holder(job_id, LOCKED_SECONDS)

        def work(session: Session) -> "Explanation":
            job, now = session.load_one(job_id), session.now()
            facts = facts_of(session, job, now, locked_by, to_claim=to_claim)
            return explain(job, facts if sees is None else facts.seen_by(sees, hides_keys=hides_keys), now)

        return self._store.read(work)

    def _waiting(self, job_ids: Sequence[int], *, sees: Callable[[str], bool], hides_keys: bool) -> "dict[int, WhyNotRunning]":
        from holdfast.core.explain.queued import explain_waiting

        def work(session: Session) -> "dict[int, WhyNotRunning]":
            found, now = session.load(job_ids, lock=False), session.now()
            jobs = [job for job in found.values() if job.status is Status.QUEUED]
            facts = queued_facts(session, jobs, now) if jobs else {}
            return {job.id: explain_waiting(job, facts[job.id].seen_by(sees, hides_keys=hides_keys), now) for job in jobs}

        return self._store.read(work)

    def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> "Diagnosis":
        """Report whether the ledger is healthy, and what to do about each problem. Nothing is changed.

        With `clock`, a clock of the caller's, also report how far it is from the ledger's.
        """
        from holdfast.core.doctor import diagnose

        skew = None if clock is None else skew_of(self._store, validate.function("clock", clock))
        return diagnose(self.id, self._store.vitals(), self._store.read(census_of), skew)


def explain_to(
    ledger: ExplainVerbs, job_id: int, *, to_claim: bool, sees: Callable[[str], bool], hides_keys: bool = False
) -> "Explanation":
    """Explain a job to a reader of some queues. `sees` says which. Jobs of other queues, and their names, are left out.

    With `hides_keys`, the keys of limits are left out too.
    """
    return ledger._explain(job_id, to_claim=to_claim, sees=sees, hides_keys=hides_keys)  # noqa: SLF001 - the same module


def waiting_to(
    ledger: ExplainVerbs, job_ids: Sequence[int], *, sees: Callable[[str], bool], hides_keys: bool = False
) -> "dict[int, WhyNotRunning]":
    """Say of those of these jobs that are queued what keeps them from being claimed, to a reader of some queues."""
    return ledger._waiting(job_ids, sees=sees, hides_keys=hides_keys)  # noqa: SLF001 - the same module
