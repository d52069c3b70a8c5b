"""Metrics in Prometheus' text format, and a small endpoint that serves them. The only room that knows prometheus-client."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import Unavailable, ValidationError
from holdfast.telemetry.endpoint import Endpoint
from holdfast.telemetry.families import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    JOBS,
    LEDGER_COUNTERS,
    LEDGER_HISTOGRAMS,
    LEDGER_RUN,
    LEDGER_WAIT,
    RUN,
    UP,
    WAIT,
    Family,
)
from holdfast.telemetry.metrics import Labels, Metrics, Readings, quantiles
from holdfast.telemetry.timing import BOUNDS_US, SECOND, Timing

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AGE_SECONDS_MAX = 5
"""Counting all jobs reads them all: scrapes within this time share one count."""
_GAUGES = {family.name: family for family in GAUGES}


class Source(Protocol):
    """A ledger, as far as this room needs one."""

    metrics: Metrics

    def counts(self, *, max_age: float = 0) -> dict[str, dict[str, int]]: ...

    def totals(self, *, max_age: float = 0) -> Readings: ...


def render(source: Source | Metrics) -> bytes:
    """Everything to be scraped: a process's metrics and, given a ledger, how many jobs that has now.

    A ledger out of reach takes `holdfast_ledger_up` to 0 and its jobs from the page; what was counted is still there.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(Collector(source))
    page: bytes = client.generate_latest(registry)
    return page


def serve(ledger: Source, port: int, host: str = "127.0.0.1") -> Endpoint:
    """`/metrics` and `/healthz` from a daemon thread, until `close()`. Port 0 takes a free one: see `.port`.

    `/healthz` says that this process is alive, and nothing of the ledger: no restart mends a database. What the whole ledger
    does is counted from this call on, or from the first scrape that reaches the ledger.
    """
    _client()
    with contextlib.suppress(Unavailable):
        ledger.totals()
    return Endpoint(host, port, {"/metrics": (CONTENT_TYPE, lambda: render(ledger))})


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise ValidationError(
            "metrics for Prometheus need prometheus-client: pip install 'holdfast[metrics]'",
            action="Install it.",
            field="metrics",
        ) from error
    return prometheus_client


class Collector:
    """For a registry of prometheus-client's: `REGISTRY.register(Collector(ledger))` puts these beside a program's own."""

    def __init__(self, source: Source | Metrics) -> None:
        _client()
        self._source = source

    def describe(self) -> "Iterable[Metric]":
        """Nothing: a registry would read the ledger to find out."""
        return []

    def collect(self) -> "Iterator[Metric]":
        metrics = self._source if isinstance(self._source, Metrics) else self._source.metrics
        readings = metrics.read()
        yield from _counters(readings, COUNTERS)
        yield from _histograms(readings, HISTOGRAMS)
        yield from _quantiles(readings, WAIT, RUN)
        if not isinstance(self._source, Metrics):
            yield from _ledger(self._source)


def _counters(readings: Readings, families: Sequence[Family]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily

    for family in families:
        metric = CounterMetricFamily(family.name, family.what, labels=family.labels)
        for labels, count in sorted(readings.counters[family.name].items()):
            metric.add_metric(labels, count)
        yield metric


def _histograms(readings: Readings, families: Sequence[Family]) -> "Iterator[Metric]":
    from prometheus_client.core import HistogramMetricFamily

    for family in families:
        metric = HistogramMetricFamily(family.name, family.what, labels=family.labels)
        for labels, timing in sorted(readings.timings[family.name].items(), key=_labels):
            metric.add_metric(labels, _buckets(timing), sum_value=timing.sum_us / SECOND)
        yield metric


def _labels(item: tuple[Labels, Timing]) -> Labels:
    return item[0]


def _buckets(timing: Timing) -> list[tuple[str, float]]:
    bounds = [*(str(bound / SECOND) for bound in BOUNDS_US), "+Inf"]
    return list(zip(bounds, map(float, accumulate(timing.buckets)), strict=True))


def _quantiles(readings: Readings, wait: str, run: str) -> "Iterator[Metric]":
    kinds = sorted({labels[0] for series in readings.timings.values() for labels in series})
    found = {kind: quantiles(readings, kind, (wait, run)) for kind in kinds}
    for field, name in (("wait", wait), ("run", run)):
        for share in ("p50", "p95"):
            values = [(kind, getattr(found[kind], f"{field}_{share}")) for kind in kinds]
            yield _gauge(_GAUGES[f"{name}_{share}"], [((kind,), value) for kind, value in values if value is not None])


def _ledger(source: Source) -> "Iterator[Metric]":
    try:
        counted, totals = source.counts(max_age=AGE_SECONDS_MAX), source.totals(max_age=AGE_SECONDS_MAX)
    except Unavailable:
        yield _gauge(_GAUGES[UP], [((), 0)])
        return
    jobs: dict[Labels, int] = {}
    for queue, statuses in counted.items():
        for status, count in statuses.items():
            labels = (source.metrics.queue_label(queue), status)
            jobs[labels] = jobs.get(labels, 0) + count
    yield _gauge(_GAUGES[UP], [((), 1)])
    yield _gauge(_GAUGES[JOBS], sorted(jobs.items()))
    yield from _counters(totals, LEDGER_COUNTERS)
    yield from _histograms(totals, LEDGER_HISTOGRAMS)
    yield from _quantiles(totals, LEDGER_WAIT, LEDGER_RUN)


def _gauge(family: Family, values: Iterable[tuple[Labels, float]]) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    metric = GaugeMetricFamily(family.name, family.what, labels=family.labels)
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric
