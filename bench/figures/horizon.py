"""A drain by a real worker while an open transaction keeps dead rows from being vacuumed: is its end as fast as its start?"""

import time
from contextlib import nullcontext
from itertools import pairwise

import holdfast
from bench import reports
from bench.places import Host, PostgresHost, PostgresPlace
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading(
    "Drain by `holdfast worker run` while a transaction with a snapshot stays open", ours="last tenth", base="first tenth"
)
TARGET = 0.7
PARTS = 10
DRAIN_SECONDS = 600.0
LATE_POSITIONS = 32 * 2_048
"""A batch may be committed after another one that has drawn a later position."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    if not isinstance(host, PostgresHost):
        return []
    return [_drain(host, sizes, pinned=True), _drain(host, sizes, pinned=False)]


def _drain(host: PostgresHost, sizes: Sizes, *, pinned: bool) -> Row:
    size = max(1, sizes.jobs // PARTS)
    with host.place() as place:
        place.fill(reports.QUEUE, sizes.warm_up + size * PARTS)
        place.settle()
        with holdfast.open(place.url) as ledger, place.pinned() if pinned else nullcontext():
            drained = Drained(place, ledger.position())
            with reports.worker(place.url, ledger):
                times = [drained.reached(sizes.warm_up + size * part) for part in range(PARTS + 1)]
        written = place.events("succeeded")
        assert written == sizes.warm_up + size * PARTS
    rates = [size / (end - begin) for begin, end in pairwise(times)]
    what = host.name if pinned else f"{host.name}, none open"
    return Row(what, rates[-1], rates[0], TARGET if pinned else None, written, {"tenths": rates})


class Drained:
    """How many jobs have succeeded after a position. Only the newest batches are read: more would disturb the measurement."""

    def __init__(self, place: PostgresPlace, after: int) -> None:
        self._place = place
        self._start = after
        self._sizes: dict[int, int] = {}

    def reached(self, count: int) -> float:
        """The time when this many jobs have succeeded."""
        deadline = time.perf_counter() + DRAIN_SECONDS
        while sum(self._sizes.values()) < count:
            assert time.perf_counter() < deadline, "the worker does not come to an end"
            time.sleep(0.002)
            newest = max(self._sizes, default=self._start)
            self._sizes |= self._place.succeeded(max(self._start, newest - LATE_POSITIONS))
        return time.perf_counter()
