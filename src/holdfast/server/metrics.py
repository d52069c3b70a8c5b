"""The metrics of a server: its requests, its services, and the state of the ledger. The values of every label are bounded."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import Unavailable
from holdfast.watch import families
from holdfast.watch.families import SERVER_COUNTERS, SERVER_GAUGES, SERVER_HISTOGRAMS
from holdfast.watch.process import OTHER, Labels, Metrics
from holdfast.watch.prometheus import AGE_SECONDS_MAX, counters, gauge, histograms
from holdfast.watch.tally import SECOND_US

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.ledger.overview import Overview
    from holdfast.server.app import Server

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GAUGES = {family.name: family for family in SERVER_GAUGES}
Values = list[tuple[Labels, float]]


class ServerMetrics:
    """Counts the requests of a server, and reads the rest when it is scraped."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._requests = Metrics(SERVER_COUNTERS, SERVER_HISTOGRAMS)
        self._lock = threading.Lock()
        self._overview: Overview | None = None
        self._read_at = float("-inf")

    def note(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count one request. A route is a pattern of the table; a request that has none is counted as `other`."""
        labels = (method if method in METHODS else OTHER, route or OTHER, str(status))
        duration_us = round(seconds * SECOND_US)
        self._requests.add({(families.HTTP_REQUESTS, labels): 1}, {families.HTTP_SECONDS: {labels[1:2]: [duration_us]}})

    def collect(self) -> "Iterator[Metric]":
        readings = self._requests.read()
        yield from counters(readings, SERVER_COUNTERS)
        yield from histograms(readings, SERVER_HISTOGRAMS)
        found: dict[str, Values] = {families.CLAIMS_WAITING: [((), self._server.claims.waiting)], **self._services()}
        with contextlib.suppress(Unavailable):
            found |= self._ledger(self.overview(AGE_SECONDS_MAX))
        for name, values in found.items():
            yield gauge(_GAUGES[name], values)

    def _services(self) -> dict[str, Values]:
        states = {name: found.state for name, found in self._server.services().items() if found.state != "off"}
        return {
            families.SERVICE_UP: [((name,), state != "failing") for name, state in states.items()],
            families.SERVICE_ACTIVE: [((name,), state == "active") for name, state in states.items()],
        }

    def overview(self, age_s: float) -> "Overview":
        """Return an overview that is less than `age_s` seconds old. Callers at the same time wait for one reading."""
        with self._lock:
            now = time.monotonic()
            if self._overview is None or now - self._read_at >= age_s:
                self._overview, self._read_at = self._server.ledger.overview(), now
            return self._overview

    def _ledger(self, overview: "Overview") -> dict[str, Values]:
        oldest: dict[Labels, float] = {}
        for one in overview.oldest:
            labels = (self._server.ledger.metrics.queue_label(one.queue),)
            oldest[labels] = max(oldest.get(labels, 0.0), (overview.now - one.ready_since).total_seconds())
        codes = Counter(finding.code for finding in overview.findings if finding.severity == "warning")
        workers = overview.workers
        return {
            families.WORKERS: [(("fresh",), workers.fresh), (("late",), workers.late), (("silent",), workers.silent)],
            families.OLDEST_READY: list(oldest.items()),
            families.DEAD_LETTERS_WAITING: [((), overview.dead_letters)],
            families.ATTENTION: [((), overview.attention)],
            families.FINDINGS: [((code,), count) for code, count in codes.items()],
        }
