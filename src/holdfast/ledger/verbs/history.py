"""Verbs that read totals and history, and the interface for the service that counts them."""

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.model import Micros
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, ServiceAccess
from holdfast.ledger.public import Duration
from holdfast.store.history import EventTally
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.ledger.charts import JobTotals, LedgerHistory


class HistoryVerbs(LedgerBase):
    def job_totals(self) -> "JobTotals":
        """Return the number of jobs by queue, kind and status, exactly as of a position.

        A service keeps these numbers. If none has run yet, `as_of.pos` is 0 and there are no numbers: `counts` counts the jobs
        themselves.
        """
        from holdfast.ledger.charts import totals_of

        return self._store.read(totals_of)

    def history(
        self,
        *,
        metric: str = "throughput",
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> "LedgerHistory":
        """Return what happened over time, to all jobs or to those of one queue or kind. The default is the last hour.

        `metric` is throughput, errors, depth (queued jobs at the end), wait (from available to claimed) or run (from the start
        to the end). `step` is the distance between two points: 1, 2, 5, 10, 15 or 30 min, 1, 2, 3, 6 or 12 h, or 1 d. Without
        it, the shortest one that gives at most 400 points is used. Minutes are kept for 48 h and hours for 90 d.
        """
        from holdfast.ledger.charts import Metric, Series, Span, chart_of

        wanted = validate.choice("metric", Metric, metric)
        series, span = Series.chosen(queue, kind), Span.chosen(since, until, step)
        return self._store.read(lambda session: chart_of(session, wanted, series, span))

    @property
    def history_writer(self) -> "HistoryWriter":
        """The interface for the service that counts events."""
        return HistoryWriter(self._store, self._pipeline, self._entropy, self._monotonic)


class HistoryWriter(ServiceAccess):
    """Counts events. Safe to use from many threads and processes: a page is counted once."""

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
        return self._store.read(lambda session: session.tally(until, limit))

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
