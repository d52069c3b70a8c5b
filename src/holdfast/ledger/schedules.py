"""Make the jobs of schedules that are due. The sweep does this.

A firing makes its job and moves the schedule to its next time in one transaction, under the lock of the schedule's row. So each
firing makes one job, however many processes sweep, and also if one of them is killed.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads
from holdfast.core.groups import FollowUp
from holdfast.core.model import TERMINAL, Actor, EventType, Micros, Role
from holdfast.core.schedule import Overlap, Position, ScheduleBody, UnmadeTimes, fire_at, plan_firings
from holdfast.core.text import iso_format
from holdfast.errors import HoldfastError, Unavailable, ValidationError
from holdfast.ledger import metrics
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.decisions import apply
from holdfast.ledger.dispatch import enqueue_one
from holdfast.ledger.firing_times import ScheduleTimes
from holdfast.ledger.limit_keys import add_keys, make_limit
from holdfast.ledger.public import to_datetime
from holdfast.ledger.requests import Request, Result
from holdfast.ledger.signing import Signer, TransactionSigner
from holdfast.store.base import Store
from holdfast.store.rows import chunks
from holdfast.store.schedules import FiringRow, ScheduleRow
from holdfast.store.session import EnqueuedRow, Session
from holdfast.watch.process import Metrics

log = logging.getLogger("holdfast.schedules")

SHARED_MAX = 50
"""Schedules that share a transaction."""
ERROR_CHARACTERS_MAX = 500
OVERLAP_REASON = "the next firing of its schedule"


def actor_of(name: str) -> Actor:
    """Return the actor of the jobs that a schedule makes."""
    return Actor(Role.CLIENT, f"schedule:{name}")


def job_command(body: ScheduleBody | FollowUp, available_at: Micros | None, request_id: str, actor: Actor) -> c.Enqueue:
    """Return the command that makes a stored job. Without a time, the job is available at once, or after its delay."""
    payload = payloads.decode(payloads.EnqueuedPayload, bytes(body.job))
    if available_at is not None:
        payload = msgspec.structs.replace(payload, available_at=available_at + payload.delay_us, delay_us=0)
    ids = {"correlation_id": body.correlation_id, "trace_id": body.trace_id}
    return c.enqueue_of(payload, actor=actor, request_id=request_id, **ids)


def due_at(name: str, body: ScheduleBody, position: Position) -> Micros | None:
    """Return when the next firing of a schedule is due."""
    return None if position.next_at is None else fire_at(name, body.jitter_us, position.next_at)


class ScheduleFirer:
    """Makes the jobs that are due."""

    def __init__(self, store: Store, pipeline: CommitPipeline, signer: Signer, counts: Metrics) -> None:
        self._store = store
        self._pipeline = pipeline
        self._signer = signer
        self._metrics = counts

    def fire(self, made: Counter[str]) -> None:
        """Make the jobs that are due, and count them in `made`. A schedule whose row is locked is left for the next sweep.

        Many schedules share a transaction. If one of them is refused or has to wait, each gets a transaction of its own.
        """
        names = self._store.read_statement(lambda session: session.due_schedules(limits.SCHEDULES_PER_SWEEP_MAX))
        for part in chunks(names, SHARED_MAX):
            try:
                self._count(self._pipeline.transact(partial(self._fire_all, part), wait=False), made)
            except HoldfastError:
                for name in part:
                    self._fire_alone(name, made)

    def realign(self, names: Sequence[str]) -> None:
        """Let schedules go on with their next time by the clock of now. It was ahead before, and was set back."""
        for part in chunks(names, SHARED_MAX):
            self._pipeline.transact(partial(_realign_all, part), wait=False)

    def _fire_alone(self, name: str, made: Counter[str]) -> None:
        try:
            self._count(self._pipeline.transact(partial(self._fire_one, name), wait=False), made)
        except Unavailable as error:
            if not error.locked:
                raise
        except HoldfastError as error:
            self._pipeline.transact(partial(_note_refusal, name, error), wait=False)
            log.warning("schedule %s made no job: %s", name, error.message, extra={"schedule": name, "code": error.code})

    def _count(self, results: list[Result], made: Counter[str]) -> None:
        made[EventType.ENQUEUED.value] += sum(result.changed for result in results)
        for result in results:
            metrics.count_answers(self._metrics, result)

    def _fire_all(self, names: Sequence[str], session: Session) -> list[Result]:
        return [result for name in names for result in self._fire_one(name, session)]

    def _fire_one(self, name: str, session: Session) -> list[Result]:
        row, now = session.take_schedule(name), session.now()
        if row is None or row.fire_at is None or row.next_at is None or row.fire_at > now:
            return []
        body = row.decoded()
        position = row.position
        plan = plan_firings(name, body, UnmadeTimes(ScheduleTimes(body), position.made), row.next_at, now)
        firing = _Firing(session, self._signer.in_transaction(session), row, body)
        for planned in plan.times:
            firing.make(planned)
        position = position.moved(plan)
        session.save_firing(
            name,
            position,
            due_at(name, body, position),
            FiringRow(
                plan.times[-1] if plan.times else None,
                firing.last_job,
                firing.last_error(),
                fired=len(firing.results) - firing.skipped,
                skipped=plan.skipped + firing.skipped,
            ),
        )
        return firing.results


class _Firing:
    """The jobs that one schedule makes in one transaction."""

    def __init__(self, session: Session, signer: TransactionSigner, row: ScheduleRow, body: ScheduleBody) -> None:
        self._session = session
        self._signer = signer
        self._name = row.name
        self._body = body
        self._known_error = row.last_error
        self._missing: list[str] = []
        self.last_job = row.last_job
        self.results: list[Result] = []
        self.skipped = 0

    def make(self, planned: Micros) -> None:
        """Make the job of a firing, unless the job before has not ended and the schedule does not allow two."""
        name, body = self._name, self._body
        request_id = f"{name}@{iso_format(to_datetime(planned))}"
        stored = job_command(body, fire_at(name, body.jitter_us, planned), request_id, actor_of(name))
        command, self._missing = add_keys(self._session, stored)
        result = Result(Request("enqueue", [command]))
        self.results.append(result)
        if body.overlap is not Overlap.ALLOW and self._is_live():
            if body.overlap is Overlap.SKIP:
                self.skipped += 1
                return
            self._cancel_last(result, request_id)
        row = enqueue_one(self._session, result, command)
        if not row.is_new:  # another job has the dedupe key
            self.skipped += 1
            self._session.wake(result.queues)
            return
        self.last_job = row.job_id
        result.answers, result.changed = [EnqueuedRow(row.job_id, row.at, True)], True
        self._session.wake({command.queue, *result.queues})

    def last_error(self) -> str | None:
        """Return what was wrong with the last firing that made a job. It is logged when it is new."""
        if not self._missing:
            return None
        names = ", ".join(self._missing)
        words = f"its job was made without {names:.200}: there is no such limit. Make it: {make_limit(self._missing[0])}"
        words = words[:ERROR_CHARACTERS_MAX]
        if words != self._known_error:
            log.warning("schedule %s: %s", self._name, words, extra={"schedule": self._name})
        return words

    def _is_live(self) -> bool:
        if self.last_job is None:
            return False
        if self.last_job in self._session.try_lock([self.last_job]):
            raise Unavailable(f"job {self.last_job} is locked by another transaction", locked=True)
        job = self._session.load([self.last_job], lock=True).get(self.last_job)
        return job is not None and job.status not in TERMINAL

    def _cancel_last(self, result: Result, request_id: str) -> None:
        assert self.last_job is not None
        cancel = c.Cancel(actor=actor_of(self._name), request_id=request_id, job_id=self.last_job, reason=OVERLAP_REASON)
        apply(self._session, result, cancel, self._signer)


def _realign_all(names: Sequence[str], session: Session) -> None:
    for name in names:
        row = session.take_schedule(name)
        if row is None or row.paused_at is not None:
            continue
        body = row.decoded()
        with contextlib.suppress(ValidationError):  # its time zone is no longer known
            position = row.position.realigned(ScheduleTimes(body), session.now())
            if position is not None:
                session.save_position(name, position, due_at(name, body, position))
                log.info("the clock was set back: schedule %s goes on earlier", name, extra={"schedule": name})


def _note_refusal(name: str, error: HoldfastError, session: Session) -> None:
    """Skip a firing that was refused, and note why."""
    row = session.take_schedule(name)
    if row is None or row.next_at is None:
        return
    body, position = row.decoded(), row.position
    try:
        position = position.after_refusal(ScheduleTimes(body), session.now())
    except HoldfastError:
        position = position._replace(next_at=None)  # its time zone is no longer known
    firing = FiringRow(last_error=error.message[:ERROR_CHARACTERS_MAX], skipped=1)
    session.save_firing(name, position, due_at(name, body, position), firing)
