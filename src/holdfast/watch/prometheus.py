"""Metrics in the text format of Prometheus, and the HTTP endpoint that serves them."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from holdfast.core.limits import check_integer
from holdfast.errors import Unavailable, ValidationError
from holdfast.version import install_command
from holdfast.watch.families import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    JOBS,
    LEDGER_COUNTERS,
    LEDGER_HISTOGRAMS,
    LEDGER_RUN,
    LEDGER_WAIT,
    LIMIT_CONCURRENT,
    LIMIT_KEYS,
    LIMIT_USED,
    LIMIT_WAITING,
    RUN,
    UNROUTABLE,
    UP,
    WAIT,
    Family,
)
from holdfast.watch.process import Labels, Metrics, Readings, quantiles
from holdfast.watch.tally import BOUNDS_US, SECOND_US, Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.ledger import Ledger
    from holdfast.ledger.verbs.flow import FlowStatus

PORT_MAX = 65_535
CLIENT_SECONDS_MAX = 10
"""How long a client may take to send its request."""
_TEXT_TYPE = "text/plain; charset=utf-8"

EndpointPage = tuple[str, Callable[[], bytes]]
"""A content type, and a function that returns the content."""

_log = logging.getLogger("holdfast.watch")


class _EndpointServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Mapping[str, EndpointPage]) -> None:
        self.pages = pages
        super().__init__(address, _EndpointHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug level only: the client has disconnected."""
        _log.debug("a request for metrics was not answered", exc_info=True)


class _EndpointHandler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS_MAX
    server_version = "holdfast"
    sys_version = ""
    server: _EndpointServer

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT_TYPE, b"there is no such page\n")
            return
        content_type, make = page
        try:
            body = make()
        except Exception:  # noqa: BLE001 - any error is logged and answered with status 500
            _log.exception("a page could not be created")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT_TYPE, b"this page could not be created; see the log\n")
            return
        self._answer(HTTPStatus.OK, content_type, body)

    do_HEAD = do_GET  # noqa: N815 - the base's name

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        _log.debug(format, *args)


class MetricsEndpoint:
    """Serves `pages` by path, and `/healthz`, until it is closed or the process ends."""

    def __init__(self, host: str, port: int, pages: Mapping[str, EndpointPage]) -> None:
        check_integer("port", port, 0, PORT_MAX)
        try:
            self._server = _EndpointServer((host, port), {"/healthz": (_TEXT_TYPE, lambda: b"ok\n"), **pages})
        except OSError as error:
            raise ValidationError(f"cannot listen on {host}:{port}: {error}", field="port") from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-endpoint", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AGE_SECONDS_MAX = 5
"""Scrapes within this time share one reading of limits."""
_GAUGES = {family.name: family for family in GAUGES}


def render(source: "Ledger | Metrics", more: "Callable[[], Iterable[Metric]] | None" = None) -> bytes:
    """Return the page to scrape: the metrics of the process and, for a ledger, its current numbers of jobs.

    If the ledger is out of reach, `holdfast_ledger_up` is 0 and its jobs are missing. The counters are still there. `more`
    returns further metrics of the program.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(Collector(source, more))
    page: bytes = client.generate_latest(registry)
    return page


def serve(ledger: "Ledger", port: int, host: str = "127.0.0.1") -> MetricsEndpoint:
    """Serve `/metrics` and `/healthz` from a daemon thread until `close()`. Port 0 selects a free port: see `.port`.

    `/healthz` reports that this process is alive. It does not check the ledger: restarting the process would not repair a
    database.
    """
    _client()
    return MetricsEndpoint(host, port, {"/metrics": (CONTENT_TYPE, lambda: render(ledger))})


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise ValidationError(
            f"metrics for Prometheus need prometheus-client: {install_command('metrics')}",
            action="Install it.",
            field="metrics",
        ) from error
    return prometheus_client


class Collector:
    """A prometheus-client collector: `REGISTRY.register(Collector(ledger))` adds these metrics to the program's own."""

    def __init__(self, source: "Ledger | Metrics", more: "Callable[[], Iterable[Metric]] | None" = None) -> None:
        _client()
        self._source = source
        self._more = more

    def describe(self) -> "Iterable[Metric]":
        """Return nothing, so that a registry does not read the ledger when this is registered."""
        return []

    def collect(self) -> "Iterator[Metric]":
        metrics = self._source if isinstance(self._source, Metrics) else self._source.metrics
        readings = metrics.read()
        yield from counters(readings, COUNTERS)
        yield from histograms(readings, HISTOGRAMS)
        yield from _quantiles(readings, WAIT, RUN)
        if not isinstance(self._source, Metrics):
            yield from _ledger_metrics(self._source)
        if self._more is not None:
            yield from self._more()


def counters(readings: Readings, families: Sequence[Family]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily

    for family in families:
        metric = CounterMetricFamily(family.name, family.description, labels=family.labels)
        for labels, count in sorted(readings.counters[family.name].items()):
            metric.add_metric(labels, count)
        yield metric


def histograms(readings: Readings, families: Sequence[Family]) -> "Iterator[Metric]":
    from prometheus_client.core import HistogramMetricFamily

    for family in families:
        metric = HistogramMetricFamily(family.name, family.description, labels=family.labels)
        for labels, timing in sorted(readings.timings[family.name].items(), key=_labels):
            metric.add_metric(labels, _buckets(timing), sum_value=timing.sum_us / SECOND_US)
        yield metric


def _labels(item: tuple[Labels, Histogram]) -> Labels:
    return item[0]


def _buckets(timing: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(bound / SECOND_US) for bound in BOUNDS_US), "+Inf"]
    return list(zip(bounds, map(float, timing.up_to_bounds()), strict=True))


def _quantiles(readings: Readings, wait: str, run: str) -> "Iterator[Metric]":
    kinds = sorted({labels[0] for series in readings.recent.values() for labels in series})
    found = {kind: quantiles(readings, kind, (wait, run)) for kind in kinds}
    for field, name in (("wait", wait), ("run", run)):
        for share in ("p50", "p95"):
            values = [(kind, getattr(found[kind], f"{field}_{share}")) for kind in kinds]
            yield gauge(_GAUGES[f"{name}_{share}"], [((kind,), value) for kind, value in values if value is not None])


def _ledger_metrics(source: "Ledger") -> "Iterator[Metric]":
    try:
        counted, totals = source.counts(), source.history_writer.readings()
        flow = source.flow_status(max_age=AGE_SECONDS_MAX)
    except Unavailable:
        yield gauge(_GAUGES[UP], [((), 0)])
        return
    jobs: dict[Labels, int] = {}
    for queue, statuses in counted.items():
        for status, count in statuses.items():
            labels = (source.metrics.queue_label(queue), status)
            jobs[labels] = jobs.get(labels, 0) + count
    yield gauge(_GAUGES[UP], [((), 1)])
    yield gauge(_GAUGES[JOBS], sorted(jobs.items()))
    yield from _flow_metrics(source.metrics, flow)
    yield from counters(totals, LEDGER_COUNTERS)
    yield from histograms(totals, LEDGER_HISTOGRAMS)
    yield from _quantiles(totals, LEDGER_WAIT, LEDGER_RUN)


def _flow_metrics(metrics: Metrics, flow: "FlowStatus") -> "Iterator[Metric]":
    """Yield the metrics of flow control. A ledger has a bounded number of limits."""
    found: dict[str, list[tuple[Labels, float]]] = {
        LIMIT_USED: [((one.name,), one.used) for one in flow.limits],
        LIMIT_CONCURRENT: [((one.name,), one.concurrent) for one in flow.limits if one.concurrent is not None],
        LIMIT_KEYS: [((one.name,), one.keys) for one in flow.limits],
        LIMIT_WAITING: [((one.name,), one.waiting) for one in flow.limits],
    }
    waiting: dict[Labels, float] = {}
    for queue, count in flow.unroutable.items():
        labels = (metrics.queue_label(queue),)
        waiting[labels] = waiting.get(labels, 0) + count
    found[UNROUTABLE] = sorted(waiting.items())
    for name, values in found.items():
        yield gauge(_GAUGES[name], values)


def gauge(family: Family, values: Iterable[tuple[Labels, float]]) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    metric = GaugeMetricFamily(family.name, family.description, labels=family.labels)
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric
