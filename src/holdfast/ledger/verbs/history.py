"""Verbs that read totals and history, and the interface for the service that counts them."""

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.counted import HistoryWriter
from holdfast.ledger.public import Duration

if TYPE_CHECKING:
    from holdfast.ledger.charts import JobTotals, LedgerHistory


class HistoryVerbs(LedgerBase):
    def job_totals(self) -> "JobTotals":
        """Return the number of jobs by queue, kind and status, with every change that was committed before.

        These numbers are kept. What happened since they were written is added. If that is more than 10,000 events, they are
        counted first. A process that may not write then returns what is counted: `as_of` says up to where.
        """
        from holdfast.ledger.charts import totals_of

        return self._history.read(totals_of)

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
        return self._history.read(lambda counted: chart_of(counted, wanted, series, span))

    @property
    def history_writer(self) -> HistoryWriter:
        """The interface for the service that counts events."""
        return self._history
