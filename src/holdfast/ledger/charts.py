"""Totals of jobs, and charts of the history of a ledger, from what the history service has counted."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import Micros, Status
from holdfast.errors import LimitExceeded, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.counted import AsOf, Counted, queued, sum_statuses
from holdfast.ledger.public import to_datetime, to_micros
from holdfast.store.history import OTHER
from holdfast.watch import tally as rules
from holdfast.watch.tally import ERROR, P50, P95, Histogram, Tally, merged

DEFAULT_RANGE_US = rules.HOUR_US


class Metric(StrEnum):
    """What a history shows."""

    THROUGHPUT = "throughput"
    ERRORS = "errors"
    DEPTH = "depth"
    WAIT = "wait"
    RUN = "run"


# Answers


class JobTotal(msgspec.Struct, frozen=True):
    """The number of jobs of one queue, kind and status."""

    queue: str
    kind: str
    status: Status
    n: int


class JobTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are, with every change that was committed before."""

    as_of: AsOf
    complete_from: datetime | None
    """Since when the history is complete. None if nothing is counted yet."""
    statuses: dict[str, int]
    """The number of jobs of each status, of all queues and kinds."""
    rows: list[JobTotal]
    """By queue, kind and status, 10,000 at most."""
    cut: bool
    """Whether there are more rows. `statuses` counts all jobs nevertheless."""


class HistoryPoint(msgspec.Struct, frozen=True):
    """One point of a chart. `values` is None if nothing is known about that time."""

    at: datetime
    """The beginning of the time that it is about."""
    open: bool
    """Whether events of that time may still be added."""
    values: dict[str, float | int | None] | None


class LedgerHistory(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from"}):
    """A chart of at most 400 points."""

    metric: Metric
    queue: str | None
    kind: str | None
    is_other: bool
    """The queue or kind has no history of its own. The points are those of all such queues, or kinds, together."""
    step_s: int
    since: datetime
    """The beginning of the first point."""
    points: list[HistoryPoint]
    as_of: AsOf
    complete_from: datetime | None
    error: str
    """How exact percentiles are."""


class Times(msgspec.Struct, frozen=True):
    """The distribution of `n` times, in milliseconds."""

    n: int
    p50_ms: float | None
    p95_ms: float | None


def times_of(histogram: Histogram) -> Times:
    """Return the distribution of times that are counted by bucket."""
    return Times(histogram.count, _ms(histogram.quantile_us(P50)), _ms(histogram.quantile_us(P95)))


def _ms(us: float | None) -> float | None:
    return None if us is None else round(us / 1_000, 3)


def _plain(names: Sequence[str]) -> Callable[[Tally], dict[str, float | int | None]]:
    return lambda tally: {name: tally.count(name) for name in names}


_VALUES: dict[Metric, Callable[[Tally], dict[str, float | int | None]]] = {
    Metric.THROUGHPUT: _plain(("enqueued", "started", "succeeded", "failed", "cancelled", "dead_lettered")),
    Metric.ERRORS: _plain(("failed", "dead_lettered", "stalled", "requeued")),
    Metric.WAIT: lambda tally: msgspec.structs.asdict(times_of(tally.wait)),
    Metric.RUN: lambda tally: msgspec.structs.asdict(times_of(merged(tally.run.values()))),
}


def totals_of(counted: Counted) -> JobTotals:
    totals = counted.totals()
    rows = [JobTotal(queue, kind, Status(status), n) for (queue, kind, status), n in totals.items()]
    return JobTotals(
        as_of=counted.as_of,
        complete_from=counted.complete_from,
        statuses=sum_statuses(totals),
        rows=rows[: limits.TOTALS_MAX],
        cut=len(rows) > limits.TOTALS_MAX,
    )


class Series(NamedTuple):
    """All jobs, or those of one queue or kind."""

    scope: str
    name: str

    @classmethod
    def chosen(cls, queue: Any, kind: Any) -> "Series":
        if queue is not None and kind is not None:
            raise ValidationError("give queue or kind, not both", field="kind")
        if queue is not None:
            return cls("queue", limits.check_name("queue", queue))
        return cls("all", OTHER) if kind is None else cls("kind", limits.check_name("kind", kind))


class Span(NamedTuple):
    """The times that a caller wants a chart of."""

    since: Micros | None
    until: Micros | None
    step_s: int | None

    @classmethod
    def chosen(cls, since: Any, until: Any, step: Any) -> "Span":
        return cls(
            None if since is None else validate.moment("since", since),
            None if until is None else validate.moment("until", until),
            None if step is None else _step_s(step),
        )


def chart_of(counted: Counted, metric: Metric, series: Series, span: Span) -> LedgerHistory:
    return _Chart(counted, metric, *series, _range(counted.now, *span)).answer()


class _Range(NamedTuple):
    """The times of a chart."""

    start: Micros
    points: int
    step_s: int

    @property
    def step(self) -> str:
        """The rows that its points are made of."""
        return "minute" if self.step_s * 1_000_000 < rules.HOUR_US else "hour"

    def place(self, at: Micros) -> int:
        return (at - self.start) // (self.step_s * 1_000_000)


def _step_s(given: Any) -> int:
    step_ms = policies.duration_ms("step", given, 0, policies.DAY_MS)
    if step_ms // 1_000 not in rules.CHART_STEPS_S or step_ms % 1_000:
        raise ValidationError(f"step must be one of {', '.join(map(str, rules.CHART_STEPS_S))} s", field="step")
    return step_ms // 1_000


def _range(now: Micros, since: Micros | None, until: Micros | None, step_s: int | None) -> _Range:
    end = now + 1 if until is None else until  # the present minute is a point too
    start = max(0, end - DEFAULT_RANGE_US) if since is None else since
    if start >= end:
        raise ValidationError("since must be before until", field="since")
    if step_s is None:
        step_s = rules.chart_step_s(start, end, now)
    points = rules.points_between(start, end, step_s)
    if points > rules.POINTS_MAX:
        raise LimitExceeded(
            f"{points} points; the limit is {rules.POINTS_MAX}", field="step", limit=rules.POINTS_MAX, actual=points
        )
    return _Range(start - start % (step_s * 1_000_000), points, step_s)


class _Chart:
    """Makes the points of a chart from the rows of one series."""

    def __init__(self, counted: Counted, metric: Metric, scope: str, name: str, chosen: _Range) -> None:
        self._counted = counted
        self._metric = metric
        self._scope, self._name = scope, name
        self._chosen = chosen
        self._own = counted.own_names(scope)
        self._is_other = scope != "all" and rules.is_other(name, self._own)

    def answer(self) -> LedgerHistory:
        chosen = self._chosen
        return LedgerHistory(
            metric=self._metric,
            queue=self._name if self._scope == "queue" else None,
            kind=self._name if self._scope == "kind" else None,
            is_other=self._is_other,
            step_s=chosen.step_s,
            since=to_datetime(chosen.start),
            points=self._points(),
            as_of=self._counted.as_of,
            complete_from=self._counted.complete_from,
            error=ERROR,
        )

    def _points(self) -> list[HistoryPoint]:
        chosen = self._chosen
        tallies: dict[int, Tally] = {}
        name = OTHER if self._is_other else self._name
        for at, tally in self._counted.series(chosen.step, self._scope, name, chosen.start).items():
            tallies.setdefault(chosen.place(at), Tally()).add(tally)
        depths = self._depths(tallies) if self._metric is Metric.DEPTH else {}
        as_of, since = self._counted.as_of.at, self._counted.complete_from
        counted = 0 if as_of is None else to_micros(as_of)
        known_from = None if since is None else to_micros(since)
        found = []
        for number in range(chosen.points):
            begin = chosen.start + number * chosen.step_s * 1_000_000
            end = begin + chosen.step_s * 1_000_000
            values: dict[str, float | int | None] | None = None
            if known_from is not None and end > known_from and self._is_kept(begin, counted):
                values = {"depth": depths[number]} if depths else _VALUES[self._metric](tallies.get(number, Tally()))
            found.append(HistoryPoint(to_datetime(begin), begin <= counted < end, values))
        return found

    def _is_kept(self, begin: Micros, counted: Micros) -> bool:
        """Return whether the events of this time are counted, and still there."""
        return counted - rules.KEPT_US[self._chosen.step] <= begin <= counted

    def _depths(self, tallies: dict[int, Tally]) -> dict[int, int]:
        """Return the number of queued jobs at the end of each point: the present one, less what came later."""
        depth = self._queued_now()
        found: dict[int, int] = {}
        last = max([*tallies, self._chosen.points - 1])
        for number in range(last, -1, -1):
            found[number] = depth
            depth -= tallies[number].queued if number in tallies else 0
        return found

    def _queued_now(self) -> int:
        totals = self._counted.totals()
        if not self._is_other:
            return queued(totals, self._scope, self._name)
        return queued(totals, "all", OTHER) - sum(queued(totals, self._scope, name) for name in self._own)
