"""The liveness tick: find jobs for which something is due, and submit commands for them to the commit pipeline.

Time is the ledger's. If its clock and this process's monotonic clock disagree about how much time has passed since the last look,
the ledger's clock has stepped. If the store was out of reach, heartbeats could not be recorded. In both cases every holder gets
one fresh interval, unless other processes went on sweeping: then only this process was cut off. The time is noted in the ledger
and used by every process: other sweepers, `claim_job`, `stall`, the command line. A holder's silence alone is no outage.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.core.commands import Compensate, ContinueCascade, JobCommand, LinkDependencies, Sweep
from holdfast.core.decide import Decision
from holdfast.core.limits import (
    OPEN_CASCADE_BATCH_MAX,
    SCHEDULES_MAX,
    SWEEP_BATCH,
    SWEEP_MAX,
    TIDY_BATCH_MAX,
    UNDO_BATCH_MAX,
    check_integer,
)
from holdfast.core.model import SYSTEM, EventType, Micros
from holdfast.core.payloads import StalledPayload, decode
from holdfast.core.text import format_seconds
from holdfast.errors import HoldfastError, SignatureInvalid, Unavailable
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.requests import Request, is_locked
from holdfast.store.base import Store
from holdfast.store.fleet import DutyStatus
from holdfast.store.jobs import DueJobs, UnfinishedJobs
from holdfast.store.session import Session
from holdfast.telemetry.logs import JobFields, log_step

T = TypeVar("T")

SWEEP_DUTY = "sweep"

log = logging.getLogger("holdfast.sweep")


class Entropy(Protocol):
    """A source of random values."""

    def token(self) -> str: ...
    def nonce(self) -> str: ...
    def secret(self) -> bytes: ...
    def jitter(self) -> float: ...


STEP_US = 2_000_000
"""A larger disagreement is a step. Clocks are slewed by less than a thousandth, and ticks are seconds apart."""
GAP_US = 1_000_000
"""If no worker takes the duty for this long after its end, there is a gap in the sweeping. Workers look every 0.75 s."""
FIRING_AHEAD_US = 3_000_000
"""A sweeper takes the duty this long before a schedule is due, so that it is there in time."""
SLOW_SECONDS = 2.0
"""If one small statement takes longer than this, the store was out of reach."""

UNSIGNED = "unsigned"
"""The name under which a tick counts the jobs that it skipped because this process has no server key."""


class Sweeper:
    def __init__(
        self,
        store: Store,
        pipeline: CommitPipeline,
        entropy: Entropy,
        monotonic: Callable[[], float],
        fire: Callable[[Counter[str]], None],
        realign: Callable[[Sequence[str]], None],
    ) -> None:
        """`fire` makes the jobs of schedules that are due, and counts them. `realign` corrects their times after the clock was
        set back."""
        self._store = store
        self._pipeline = pipeline
        self._entropy = entropy
        self._monotonic = monotonic
        self._fire = fire
        self._realign = realign
        self.seconds_to_firing: float | None = None
        """After the last look: how long it was until the next schedule is due. None if there is none."""
        self._last: tuple[Micros, float] | None = None
        self._cut_off = False
        self._fresh: Micros = 0
        self._is_noted = True
        self._is_realigned = False
        self._gap: Micros | None = None
        self._locked: dict[int, Micros] = {}
        self._warned_unsigned = False
        self._linked = 0

    def look(self, holder: str) -> bool:
        """Return whether `holder` should take the sweep duty. Every worker calls this, and so notices clock steps and outages."""
        began = self._monotonic()
        found = self._reached(lambda: self._store.read_statement(lambda session: session.watch(SWEEP_DUTY, holder)))
        if self._monotonic() - began > SLOW_SECONDS:
            self._cut_off = True
        if self._cut_off and self._was_swept(found):
            self._cut_off = False
        self._reached(lambda: self._notice(found.now))
        left_us = None if found.next_firing_at is None else max(0, found.next_firing_at - found.now)
        self.seconds_to_firing = None if left_us is None else left_us / 1_000_000
        fires_soon = left_us is not None and left_us <= FIRING_AHEAD_US
        if not (found.is_free and (found.is_wanted or fires_soon)):
            self._gap = None
            return False
        if found.expires_at is None or found.now - found.expires_at > GAP_US:
            self._note_gap(found)
        return True

    def _note_gap(self, found: DutyStatus) -> None:
        """Note that sweeping starts again now. This is noted once, even if this process looks again before it takes the duty."""
        gap = found.expires_at or 0
        if gap != self._gap and self._note(lambda session: session.note_sweeping(found.now)):
            self._gap = gap

    def _was_swept(self, found: DutyStatus) -> bool:
        """Return whether other processes went on sweeping while this process could not reach the store.

        Then only this process was cut off, and the silence of other holders counts.
        """
        since, last = found.sweeping_since, self._last
        return not found.is_free and since is not None and last is not None and since <= last[0]

    def tick(self, limit: int) -> dict[str, int]:
        """Do what is due for up to `limit` jobs. Return how many events of each type that made.

        If an event must be signed and this process has no server key, the job is skipped and counted as `unsigned`. Jobs that
        another transaction has locked are left for the next tick.
        """
        check_integer("limit", limit, 1, SWEEP_MAX)
        return self._reached(lambda: self._tick(limit))

    def _reached(self, work: Callable[[], T]) -> T:
        """Run `work`, and remember if the store is out of reach."""
        try:
            return work()
        except Unavailable as error:
            self._cut_off = self._cut_off or not error.locked
            raise

    def _tick(self, limit: int) -> dict[str, int]:
        """Sweep in bounded transactions, so that other requests run in between. If nothing is due, this costs two statements."""
        made: Counter[str] = Counter()
        after, done, has_checks, has_group_changes = 0, 0, False, False
        while done < limit:
            wanted = min(limit - done, SWEEP_BATCH)
            now, fresh, ids, has_checks, has_firings, has_group_changes = self._store.read_statement(partial(_due, after, wanted))
            if after == 0:
                noticed = self._fresh
                self._notice(now)
                # After a step back, the time that was read lies in the future. Use the one that was just noted instead.
                fresh = self._fresh if self._fresh != noticed else fresh
                if has_firings:
                    self._fire(made)
            if ids:
                done += self._sweep(ids, made, now, max(fresh, self._fresh))
                after = ids[-1]
            if len(ids) < wanted:
                break
        if has_checks:
            self._store.write_statement(lambda session: session.tidy_claims(TIDY_BATCH_MAX))
        if has_group_changes:
            self._pipeline.count_groups(made)
        self._finish(min(limit, UNDO_BATCH_MAX), made)
        self._warn_unsigned(made[UNSIGNED])
        return dict(+made)

    def _sweep(self, ids: Sequence[int], made: Counter[str], now: Micros, fresh: Micros) -> int:
        """Sweep these jobs. Return for how many of them something was due.

        A job with a locked row gets a fresh interval of its own: its holder's heartbeats could not be recorded.
        """
        request_id = self._entropy.nonce()
        sweeps = [
            Sweep(
                actor=SYSTEM,
                request_id=request_id,
                job_id=id_,
                jitter=self._entropy.jitter(),
                fresh_since=max(fresh, self._locked.get(id_, 0)),
            )
            for id_ in ids
        ]
        result = self._pipeline.submit(_request(sweeps))
        answers = result.answers
        for outcome in result.outcomes:
            _log_outcome(outcome)
        if len(self._locked) > SWEEP_MAX:
            self._locked.clear()
        self._locked.update((id_, now) for id_, answer in zip(ids, answers, strict=True) if is_locked(answer))
        return _count(answers, made)

    def _finish(self, limit: int, made: Counter[str]) -> None:
        """Do what is due for finished jobs: continue cascades that were too large for one transaction, and start undo steps.

        Dependents that are not registered with their dependencies yet are linked.
        """
        left = self._left_over(limit)
        while left.cascade_pending and self._make(ContinueCascade, left.cascade_pending, made):
            left = self._left_over(limit)
        # After a full page, the next tick continues behind it, so that locked jobs do not delay the others.
        self._linked = left.link_pending[-1] if len(left.link_pending) == OPEN_CASCADE_BATCH_MAX else 0
        self._make(LinkDependencies, left.link_pending, made)
        self._make(Compensate, left.undo_pending, made)

    def _left_over(self, limit: int) -> UnfinishedJobs:
        return self._store.read_statement(lambda session: session.unfinished_jobs(limit, self._linked))

    def _make(self, kind: type[JobCommand], ids: Sequence[int], made: Counter[str]) -> int:
        request_id = self._entropy.nonce()
        commands = [kind(actor=SYSTEM, request_id=request_id, job_id=id_) for id_ in ids]
        return _count(self._pipeline.submit(_request(commands)).answers, made) if commands else 0

    def _warn_unsigned(self, count: int) -> None:
        if count and not self._warned_unsigned:
            log.warning("%d jobs are left to a sweeper with a server key: their events must be signed", count)
        self._warned_unsigned = self._warned_unsigned or count > 0

    def _notice(self, now: Micros) -> None:
        """Note in the ledger that the clock has stepped, or that the store is back in reach.

        A process that has just started does not know whether the clock has stepped before, and corrects schedules too.
        """
        passed = self._monotonic()
        before, then = self._last or (now, passed)
        if self._cut_off or abs((now - before) - (passed - then) * 1_000_000) > STEP_US:
            self._fresh, self._is_noted, self._is_realigned = now, False, False
        self._last, self._cut_off = (now, passed), False
        if not self._is_noted:
            self._is_noted = self._note(lambda session: session.note_fresh(self._fresh))
        if not self._is_realigned:
            self._is_realigned = _is_unlocked(self._correct_schedules)

    def _correct_schedules(self) -> None:
        names = self._store.read_statement(lambda session: session.stepped_schedules(SCHEDULES_MAX))
        if names:
            self._realign(names)

    def _note(self, work: Callable[[Session], None]) -> bool:
        """Write a note to the ledger. Return False if its row is locked: the sweep goes on without it."""
        return _is_unlocked(lambda: self._pipeline.transact(work, wait=False))


def _is_unlocked(work: Callable[[], None]) -> bool:
    """Run `work`. Return False if it needs a row that another transaction has locked."""
    try:
        work()
    except Unavailable as error:
        if not error.locked:
            raise
        return False
    return True


def _log_outcome(outcome: Decision) -> None:
    """Log stalls, and jobs that ended because of them."""
    job = outcome.job
    for event in outcome.events:
        if event.type is EventType.STALLED:
            body = decode(StalledPayload, event.payload)
            silent_us = max(0, event.received_at - body.last_beat_at)
            message = f"stalled: {event.reason}, silent for {format_seconds(silent_us)} s"
            facts = {"reason": event.reason, "silent_ms": silent_us // 1_000}
            began = job.started_at or job.claimed_at
            duration_ms = None if began is None else max(0, event.received_at - began) // 1_000
            log_step(log, logging.WARNING, "stalled", JobFields(job, body.holder), message, duration_ms=duration_ms, **facts)
        elif event.type in (EventType.DEAD_LETTERED, EventType.FAILED):
            message = f"{event.type.value.replace('_', '-')} ({event.reason})"
            error = None if job.last_error is None else msgspec.json.decode(job.last_error)
            fields = JobFields(job, job.last_owner or "")
            log_step(log, logging.WARNING, event.type.value, fields, message, error=error, reason_code=event.reason)


def _due(after: int, limit: int, session: Session) -> DueJobs:
    return session.due(after, limit)


def _request(commands: Sequence[JobCommand]) -> Request:
    return Request("sweep", commands, waits=False)


def _count(answers: Sequence[Any], made: Counter[str]) -> int:
    """Add the events that the commands made to `made`. Return how many commands made any.

    A refusal means that nothing is due any more, that the job is locked, or that this process lacks the key to sign with.
    """
    made[UNSIGNED] += sum(isinstance(answer, SignatureInvalid) for answer in answers)
    kinds = [answer for answer in answers if answer and not isinstance(answer, HoldfastError)]
    made.update(kind.value for some in kinds for kind in some)
    return len(kinds)
