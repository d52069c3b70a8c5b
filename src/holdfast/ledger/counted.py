"""Counts of jobs and of what happened to them: what the ledger keeps, and the events since then.

A service counts events by page and keeps the sums. A reader adds the events that are not counted yet in memory, on the same
snapshot. So what it returns includes every change that was committed before.
"""

import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.core.model import Micros, Status
from holdfast.errors import HoldfastError
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.public import to_datetime, to_micros
from holdfast.store.base import Store
from holdfast.store.history import OTHER, EventTally, HistoryRow, TotalKey
from holdfast.store.session import Session
from holdfast.watch import families
from holdfast.watch import tally as rules
from holdfast.watch.process import OTHER as OTHER_KINDS
from holdfast.watch.process import Labels, Readings
from holdfast.watch.tally import Histogram, Tally

T = TypeVar("T")

BEHIND_MAX = 10_000
"""Events that a reader counts in memory. If there are more, it lets them be counted first."""
NEWEST = 1 << 62


class AsOf(msgspec.Struct, frozen=True):
    """What is counted: all events that were committed before `at`. The newest of them has the position `pos`.

    If too many events are not counted yet and this process may not write, `pos` and `at` are those of the last event that is
    counted. The position is 0 if none is.
    """

    pos: int
    at: datetime | None


RATE_MINUTES = 5


class Rates(msgspec.Struct, frozen=True):
    """Events a minute: the mean of the last five full minutes and the present one, or of the ledger's life if that is shorter.

    `failed` includes dead letters.
    """

    enqueued: float
    started: float
    succeeded: float
    failed: float
    window_s: int
    """How many seconds the mean is of."""


class RateWindow(NamedTuple):
    """The time that rates are of."""

    since: Micros
    us: int

    @property
    def first_minute(self) -> Micros:
        return rules.slot_of(self.since, "minute")

    def rates(self, tally: Tally) -> Rates:
        minutes = self.us / rules.MINUTE_US
        failed = tally.count("failed") + tally.count("dead_lettered")
        enqueued, started, succeeded = map(tally.count, ("enqueued", "started", "succeeded"))
        seconds = self.us // 1_000_000
        return Rates(enqueued / minutes, started / minutes, succeeded / minutes, failed / minutes, seconds)


class Counted:
    """The counts of one snapshot."""

    def __init__(self, session: Session, events_max: int) -> None:
        self.session = session
        self.now = session.now()
        self._progress = session.history_progress()
        page = session.next_page(NEWEST, events_max + 1)
        self.is_behind = page is not None and not page.is_last
        """There are too many events that are not counted yet."""
        self._tail: EventTally | None = None if page is None or self.is_behind else session.tally(page)
        self._named: set[rules.SeriesKey] | None = None

    @property
    def as_of(self) -> AsOf:
        at = self._progress.at if self.is_behind else self.now
        pos = self._progress.pos if self._tail is None else self._tail.newest
        return AsOf(pos, None if at is None else to_datetime(at))

    @property
    def complete_from(self) -> datetime | None:
        """Since when the history is complete. None if nothing is counted."""
        at = self._progress.since_at
        if at is None and self._tail is not None and self._tail.history:
            at = min(minute for _, minute in self._tail.history) * rules.MINUTE_US
        return None if at is None else to_datetime(at)

    def rate_window(self) -> RateWindow | None:
        """Return the time that rates are of. None if less than a minute is counted: a rate of so little would say nothing."""
        until, known = self.as_of.at, self.complete_from
        if until is None:
            return None
        end = to_micros(until)
        start = rules.slot_of(end, "minute") - RATE_MINUTES * rules.MINUTE_US
        if known is not None and to_micros(known) >= start:
            first = self.session.event_from(0)
            start = max(to_micros(known), 0 if first is None else first.at)
        return RateWindow(start, end - start) if end - start >= rules.MINUTE_US else None

    def totals(self) -> dict[TotalKey, int]:
        """Return the number of jobs of each queue, kind and status, in this order."""
        found = Counter({(row.queue, row.kind, row.status): row.n for row in self.session.totals()})
        if self._tail is not None:
            found.update(self._tail.totals)
        return {key: n for key, n in sorted(found.items()) if n}

    def own_names(self, scope: str) -> set[str]:
        """Return the queues or the kinds that have a history of their own."""
        if self._named is None:
            known = {(row.scope, row.name) for row in self.session.history_names()}
            used = {} if self._tail is None else rules.last_hours(self._tail.history, self.now)
            self._named = rules.with_own_history(known, used)
        return {name for named_scope, name in self._named if named_scope == scope}

    def series(self, step: str, scope: str, name: str, since: Micros) -> dict[Micros, Tally]:
        """Return what happened in each minute or hour from a time on, to all jobs or to those of one queue or kind."""
        found = {row.at: row.tally() for row in self.session.history_series(step, scope, name, since)}
        for slot, tail_name, tally in self._tail_rows(step, scope, since):
            if tail_name == name:
                found.setdefault(slot, Tally()).add(tally)
        return found

    def by_name(self, step: str, scope: str, since: Micros) -> dict[str, Tally]:
        """Return what happened from a time on to the jobs of each queue or kind."""
        found: dict[str, Tally] = defaultdict(Tally)
        for row in self.session.history_since(step, scope, since):
            found[row.name].add(row.tally())
        for _, name, tally in self._tail_rows(step, scope, since):
            found[name].add(tally)
        return found

    def _tail_rows(self, step: str, scope: str, since: Micros) -> Iterator[tuple[Micros, str, Tally]]:
        own = self.own_names(scope)
        for ((tail_scope, name), minute), tally in ({} if self._tail is None else self._tail.history).items():
            slot = rules.slot_of(minute * rules.MINUTE_US, step)
            if tail_scope == scope and slot >= since:
                yield slot, name if name in own else OTHER, tally


def sum_statuses(totals: dict[TotalKey, int]) -> dict[str, int]:
    """Return the number of jobs of each status."""
    found: Counter[str] = Counter()
    for (_, _, status), n in totals.items():
        found[status] += n
    return {status: n for status, n in sorted(found.items()) if n}


def by_queue(counted: Counted) -> dict[str, Counter[str]]:
    """Return the number of jobs of each status, for each queue that has jobs."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for (queue, _, status), n in counted.totals().items():
        found[queue][status] += n
    return found


def queued(totals: dict[TotalKey, int], scope: str, name: str) -> int:
    """Return the number of queued jobs, of all or of those of one queue or kind."""
    place = {"all": None, "queue": 0, "kind": 1}[scope]
    return sum(n for key, n in totals.items() if key[2] == Status.QUEUED and (place is None or key[place] == name))


class HistoryWriter:
    """Counts events, and reads what is counted. Safe to use from many threads and processes: a page is counted once."""

    def __init__(self, store: Store, pipeline: CommitPipeline, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._mutex = threading.Lock()
        """Held while readers let events be counted, so that several threads do not count the same ones."""
        self.monotonic = monotonic

    def now(self) -> Micros:
        """Return the ledger's time."""
        return self._store.read_statement(lambda session: session.now())

    def advance(self, limit: int) -> bool:
        """Count the next `limit` events or a few more, in the total order. Return whether there may be more at once."""
        now = self.now()
        until = self._store.stable_pos()
        page = self._tally(until, limit)
        if page is None:
            return False
        if self._pipeline.transact(lambda session: session.save_tally(page, now)):
            return not page.is_last
        # Another process has counted it, or some of its jobs were deleted meanwhile.
        return self._pipeline.transact(lambda session: self._count_locked(session, until, limit, now))

    def _tally(self, until: int, limit: int) -> EventTally | None:
        """Read a page on one snapshot: its statements must not disagree on the queue of a job that is moved meanwhile."""

        def work(session: Session) -> EventTally | None:
            page = session.next_page(until, limit)
            return None if page is None else session.tally(page)

        return self._store.read(work)

    def _count_locked(self, session: Session, until: int, limit: int, now: Micros) -> bool:
        """Count the next events while none can be counted or deleted by others. Return whether there may be more.

        The page is read beside the transaction that has the lock, because its statements have no common snapshot on PostgreSQL.
        """
        session.lock_history()
        page = self._tally(until, limit)
        return page is not None and not (session.save_tally(page, now) and page.is_last)

    def delete_old(self, limit: int) -> int:
        """Delete rows that are older than they are kept, at most `limit` of each step. Return how many."""
        now = self.now()
        return self._pipeline.transact(lambda session: session.delete_history(now, limit))

    # Reading

    def read(self, work: Callable[[Counted], T]) -> T:
        """Return what `work` makes of the counts of one snapshot.

        If there are too many events that are not counted yet, they are counted first. A process that may not write reads the
        counts without them.
        """

        def read_once(session: Session, events_max: int) -> tuple[bool, T | None]:
            counted = Counted(session, events_max)
            return (True, None) if counted.is_behind and events_max else (False, work(counted))

        is_behind, found = self._store.read(lambda session: read_once(session, BEHIND_MAX))
        if is_behind:
            left = NEWEST if self._catch_up() else 0
            _, found = self._store.read(lambda session: read_once(session, left))
        return found  # type: ignore[return-value]

    def _catch_up(self) -> bool:
        """Count all events that can be counted. Return False if this process may not write."""
        with self._mutex, contextlib.suppress(HoldfastError):
            while self.advance(BEHIND_MAX):
                """There are more."""
            return True
        return False

    def readings(self) -> Readings:
        """Return the metrics of the whole ledger: what ever happened to its jobs, and the times of the last hour.

        All events are counted first, if this process may write. What is counted in memory alone could become less when jobs are
        deleted, and a counter must not.
        """
        self._catch_up()
        return self._store.read(_readings)


def _readings(session: Session) -> Readings:
    since = rules.slot_of(session.now(), "minute") - rules.HOUR_US
    lately = _by_label(session.history_since("minute", "kind", since))
    ever = _by_label(session.history_since(rules.EVER, "kind", 0))
    events = rules.sum_tallies(row.tally() for row in session.history_since(rules.EVER, "all", 0))
    counters: dict[str, dict[Labels, int]] = {
        families.LEDGER_EVENTS: {(type_,): n for type_, n in events.events.items()},
        families.LEDGER_ENDED: {
            (kind, outcome): tally.events[outcome]
            for kind, tally in ever.items()
            for outcome in rules.OUTCOMES
            if outcome in tally.events
        },
    }
    return Readings(counters, _timings(ever), _timings(lately))


def _by_label(rows: Iterable[HistoryRow]) -> dict[str, Tally]:
    """Return what happened to the jobs of each kind. Those of kinds without a history of their own are of the kind `other`."""
    found: dict[str, Tally] = defaultdict(Tally)
    for row in rows:
        found[OTHER_KINDS if row.name == OTHER else row.name].add(row.tally())
    return found


def _timings(tallies: dict[str, Tally]) -> dict[str, dict[Labels, Histogram]]:
    waits: dict[Labels, Histogram] = {(kind,): tally.wait for kind, tally in tallies.items() if tally.wait.buckets}
    runs: dict[Labels, Histogram] = {
        (kind, outcome): times for kind, tally in tallies.items() for outcome, times in tally.run.items()
    }
    return {families.LEDGER_WAIT: waits, families.LEDGER_RUN: runs}
