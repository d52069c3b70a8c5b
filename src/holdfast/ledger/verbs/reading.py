"""Verbs that only read."""

import builtins
import contextlib
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from holdfast.core import limits, vocabulary
from holdfast.core.audit import Violation, check_history
from holdfast.core.formatting import format_error
from holdfast.core.model import TERMINAL, Status
from holdfast.core.payloads import UndoStep
from holdfast.errors import NoResult, NotFound, ResultTimeout, ValidationError
from holdfast.ledger import dialects, list_cursors, validate
from holdfast.ledger.base import public_job
from holdfast.ledger.counted import by_queue
from holdfast.ledger.public import Event, Job, JobPage, R, public_event, to_datetime
from holdfast.ledger.verbs.explaining import ExplainVerbs
from holdfast.proof.signing import SignatureCheck
from holdfast.store.base import Waiter
from holdfast.store.events import EventFilter
from holdfast.store.jobs import JobFilter
from holdfast.store.session import Session

ERROR_CHARACTERS_MAX = 1_000
"""The part of a job's error that a message quotes. `context` has all of it."""
_ENDED = {Status.FAILED: "failed", Status.DEAD_LETTERED: "was dead-lettered", Status.CANCELLED: "was cancelled"}


class Order(StrEnum):
    """The order of a list of jobs."""

    OLDEST = "oldest"
    NEWEST = "newest"
    ID = "id"
    ID_DESCENDING = "-id"
    UPDATED = "-updated"
    FINISHED = "-finished"
    AVAILABLE = "available"


class SearchedTime(StrEnum):
    """The time that `since` and `until` refer to."""

    CREATED = "created"
    UPDATED = "updated"
    FINISHED = "finished"


_BY_TIME = frozenset({Order.UPDATED, Order.FINISHED, Order.AVAILABLE})


class ReadVerbs(ExplainVerbs):
    def now(self) -> datetime:
        """Return the ledger's time. Every deadline is measured by it."""
        return to_datetime(self._store.read_statement(lambda session: session.now()))

    def get(self, job_id: int) -> Job:
        """Return a job by its id. Raise NotFound if there is none."""
        job_id = validate.job_id(job_id)
        return public_job(self._store.read(lambda session: session.load_one(job_id)))

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        phase: str | Sequence[str] | None = None,
        queue: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        dedupe_key: str | None = None,
        replay_of: int | None = None,
        owner: str | None = None,
        incarnation: str | None = None,
        waiting: bool = False,
        assist_requested: bool | None = None,
        time: str = "created",
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: str = "oldest",
        after: int = 0,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """Return jobs by ascending id, or by descending id with `order="newest"`.

        For the next page, pass the `next_cursor` of this one as `cursor`, with the same filters. The orders are oldest or id,
        newest or -id, -updated (last changed first), -finished (last ended first) and available (queued jobs by the time from
        which they can be claimed). For -updated and -finished, the newest 10,000 jobs are sorted, and all that are held or
        stalled. The filters are:

        `since`, `until`: only jobs with a time at or after `since`, and before `until`: that of the enqueue, or with `time` that
        of the last change (updated) or of the end (finished). One call examines at most 100,000 jobs.
        `text`: only jobs with this text in their kind, queue, correlation id, dedupe key, last error or arguments. The case of A
        to Z is ignored. One call examines at most 50,000 jobs. If a call stops early, `stopped` is true, and the next page goes
        on there.
        `dedupe_key`: only jobs that have this dedupe key, in any queue. A job without a window gives up its key when it ends.
        `assist_requested`: only jobs whose holder requests assistance.
        `waiting`: only jobs that wait for dependencies.
        `phase`: only running and stalled jobs in this phase, or in one of several.
        `owner`: only jobs that this worker holds, in any incarnation unless `incarnation` is given.
        """
        statuses, running_phases = validate.statuses(status)
        wanted = validate.choice("order", Order, order)
        chosen = JobFilter(
            statuses=statuses,
            running_phases=running_phases,
            phases=validate.phases(phase),
            queue=None if queue is None else limits.check_name("queue", queue),
            kind=None if kind is None else limits.check_name("kind", kind),
            correlation_id=None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            dedupe_key=None if dedupe_key is None else limits.check_key("dedupe_key", dedupe_key),
            replay_of=None if replay_of is None else validate.job_id(replay_of),
            owner=None if owner is None else limits.check_name("owner", owner),
            incarnation=None if incarnation is None else limits.check_name("incarnation", incarnation),
            waiting=validate.switch("waiting", waiting),
            assist_requested=None if assist_requested is None else validate.switch("assist_requested", assist_requested),
            time=validate.choice("time", SearchedTime, time).value,
            since=None if since is None else validate.moment("since", since),
            until=None if until is None else validate.moment("until", until),
            text=None if text is None else limits.check_key("text", text),
            newest=wanted in (Order.NEWEST, Order.ID_DESCENDING),
            sort=wanted.removeprefix("-") if wanted in _BY_TIME else None,
        )
        place = list_cursors.read_place(chosen, after, cursor)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        page = msgspec.structs.replace(chosen, after=place.after, place=place.place, limit=limit)
        found = self._store.read(lambda session: session.search(page))
        cursor_of = list_cursors.next_cursor(chosen, found)
        return JobPage(map(public_job, found.jobs), found.next_after, cursor_of, found.searched, stopped=found.stopped)

    def dependents(self, job_id: int, *, after: int = 0, limit: int = 100) -> builtins.list[Job]:
        """Return the jobs that wait, or have waited, for this one, by ascending id.

        Jobs that wait for its replay instead are dependents of the replay.
        """
        job_id = validate.job_id(job_id)
        validate.page(after, limit)

        def work(session: Session) -> Any:
            session.load_one(job_id)
            return session.load(session.dependents(job_id, after, limit), lock=False)

        return [public_job(job) for _, job in sorted(self._store.read(work).items())]

    def events(
        self,
        job_id: int | None = None,
        *,
        types: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        correlation_id: str | None = None,
        after: int = 0,
        limit: int = limits.PAGE_MAX,
    ) -> builtins.list[Event]:
        """Return events in the total order, filtered by job, type, time or correlation id. `after` is a position."""
        kinds = None if types is None else tuple(kind.value for kind in vocabulary.event_types(types))
        chosen = EventFilter(
            job_id=None if job_id is None else validate.job_id(job_id),
            types=kinds,
            since=None if since is None else validate.moment("since", since),
            until=None if until is None else validate.moment("until", until),
            correlation_id=None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            **validate.page(after, limit),
        )
        return [public_event(event) for event in self._store.read(lambda session: session.events(chosen))]

    def in_dialect(self, events: Sequence[Event], dialect: str) -> builtins.list[dict[str, Any]]:
        """Return events of this ledger as JSON objects in a dialect: holdfast, liveness, jobs or tasks."""
        given, wanted = validate.items("events", events), dialects.read_dialect(dialect)
        if not all(isinstance(event, Event) for event in given):
            raise ValidationError("events takes a list of Event", field="events")
        return dialects.in_dialect(self._store, given, wanted, self.id)

    def undo_steps(self, job_id: int) -> builtins.list[dict[str, Any]]:
        """Return the undo steps that a job has registered, oldest first, each with its kind and args. They run newest first."""
        job_id = validate.job_id(job_id)

        def work(session: Session) -> builtins.list[UndoStep]:
            session.load_one(job_id)
            return session.undo_steps(job_id)

        return [{"kind": step.kind, "args": msgspec.json.decode(step.args)} for step in self._store.read(work)]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of jobs of each status, by queue.

        The numbers are those of `job_totals`, so the time that it takes does not depend on the number of jobs.
        """
        return {queue: dict(statuses) for queue, statuses in self._history.read(by_queue).items()}

    def check(self, job_id: int) -> builtins.list[Violation]:
        """Check a job's history, its signatures and its row. Return the violations: an empty list if there are none."""
        job_id = validate.job_id(job_id)

        def work(session: Session) -> Any:
            row = session.load([job_id], lock=False).get(job_id)
            return row, session.events(EventFilter(job_id=job_id, limit=1_000_000)), self._books.latest(session)

        try:
            row, events, book = self._store.read(work)
            if row is None and not events:
                raise NotFound(f"there is no job {job_id}", job_id=job_id)
            found = check_history(events, row, SignatureCheck(book, self.id))
        except (LookupError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return [Violation(job_id, 0, "unreadable", f"a value that no ledger writes: {error!r}")]
        return found if row is not None else [*found, Violation(job_id, 0, "row", "there is no row with a first event")]

    def follow(self, after: int = 0, *, timeout: float | None = None) -> Generator[Event, None, None]:
        """Yield every event after a position, in the total order, as they are committed. No event is missed.

        The generator ends when there was no event for `timeout` seconds. By default it never ends. To continue later, pass the
        last event's `pos` as `after`.
        """
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        return self._follow(after, validate.timeout(timeout))

    def _follow(self, after: int, timeout: float | None) -> Generator[Event, None, None]:
        with contextlib.closing(self._store.waiter(events=True)) as waiter:
            while found := self._wait(waiter, partial(self._store.stable_events, after, limits.PAGE_MAX), bool, timeout):
                yield from map(public_event, found)
                after = found[-1].pos

    def stable_position(self) -> int:
        """Return the position up to which all events are visible: none can be committed at or before it any more."""
        return self._store.stable_pos()

    def stable_events(self, after: int, *, limit: int = 1_000) -> builtins.list[Event]:
        """Return the next events of the total order, up to the stable position. `follow` yields the same events as they come."""
        validate.page(after, limit)
        return [public_event(event) for event in self._store.stable_events(after, limit)]

    def position(self) -> int:
        """Return the newest position that was assigned, to follow from. Its event may not be committed yet."""
        return self._store.read_statement(lambda session: session.last_pos())

    def result(self, job: Job[R | None] | int, *, timeout: float | None = None) -> R:
        """Wait until a job has succeeded, and return its result. The job is given as an object or by its id.

        Raise ResultTimeout, which is a TimeoutError, if the job has not ended after `timeout` seconds. Its message ends with what
        `explain` says. By default, wait without a limit.
        Raise NoResult, with the job's last error, if the job failed, was dead-lettered or was cancelled.
        """
        found = self.wait(job, timeout=timeout)
        status = found.status
        if status is Status.SUCCEEDED:
            return found.result  # type: ignore[return-value]
        facts: dict[str, Any] = {"job_id": found.id, "status": status.value}
        if status not in TERMINAL:
            raise result_timeout(self, found, validate.timeout(timeout) or 0.0)
        reason = None if found.reason_code is None else found.reason_code.value
        code = f" ({reason})" if reason and status is Status.DEAD_LETTERED else ""
        error = found.cancel_reason if status is Status.CANCELLED else found.last_error
        words = f"job {found.id} {_ENDED[status]}{code}"
        if error is not None:
            words += f": {format_error(error, ERROR_CHARACTERS_MAX)}"
        raise NoResult(words, **facts, reason_code=reason, last_error=found.last_error)

    def wait(self, job: Job[R] | int, *, timeout: float | None = None) -> Job[R]:
        """Wait until a job has succeeded, failed, or was dead-lettered or cancelled, and return it.

        The job is given as an object or by its id. After `timeout` seconds, return the job unfinished: check its `status`.
        `result` raises an error instead.
        """
        job_id = validate.job_id_of(job)
        with contextlib.closing(self._store.waiter(events=True)) as waiter:
            is_over: Callable[[Job], bool] = lambda found: found.status in TERMINAL  # noqa: E731
            return self._wait(waiter, lambda: self.get(job_id), is_over, validate.timeout(timeout))

    def waiter(self) -> Waiter:
        """Return an object whose `wait(timeout)` waits for new work. Create it before claiming, so that no job is missed."""
        return self._store.waiter(events=False)


def result_timeout(ledger: ExplainVerbs, job: Job[Any], seconds: float) -> ResultTimeout:
    """Return the error for a job that has not ended after so many seconds. It ends with what `explain` says, if that works."""
    status = job.status.value
    try:
        found = ledger.explain(job.id)
        why = found.text.partition(f" is {status}. ")[2] if found.status is job.status else ""
    except Exception:  # noqa: BLE001 - the timeout is what the caller has to know
        why = ""
    words = f"job {job.id} is still {status} after {seconds:g} s"
    return ResultTimeout(f"{words}. {why}" if why else words, job_id=job.id, status=status)
