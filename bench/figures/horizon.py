"""A drain by a real worker while an open transaction keeps dead rows from being vacuumed: is its end as fast as its start?"""

from contextlib import nullcontext
from itertools import pairwise

import holdfast
from bench import reports
from bench.drained import Drained
from bench.places import Host, PostgresHost
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading(
    "Drain by `holdfast worker run` while a transaction with a snapshot stays open", ours="last tenth", base="first tenth"
)
TARGET = 0.8
PARTS = 10


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
                ledger.unpause(reports.QUEUE)
                times = [drained.reached(sizes.warm_up + size * part) for part in range(PARTS + 1)]
        written = place.events("succeeded")
        assert written == sizes.warm_up + size * PARTS
    rates = [size / (end - begin) for begin, end in pairwise(times)]
    what = host.name if pinned else f"{host.name}, none open"
    return Row(what, rates[-1], rates[0], TARGET if pinned else None, written, {"tenths": rates})
