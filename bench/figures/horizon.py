"""Somebody's forgotten transaction keeps every dead row from being vacuumed: does a drain go on as it began?"""

from contextlib import nullcontext

import holdfast
from bench import ours
from bench.places import Host, PostgresHost
from bench.report import Heading, Row
from bench.rounds import timed
from bench.sizes import Sizes

HEADING = Heading("Drain while a transaction with a snapshot stays open", ours="last tenth", base="first tenth")
TARGET = 0.7
PARTS = 10


def measure(host: Host, sizes: Sizes) -> list[Row]:
    if not isinstance(host, PostgresHost):
        return []
    return [_drain(host, sizes, pinned=True), _drain(host, sizes, pinned=False)]


def _drain(host: PostgresHost, sizes: Sizes, *, pinned: bool) -> Row:
    size = max(1, sizes.jobs // PARTS)
    with host.place() as place:
        place.fill("warm", sizes.warm_up)
        place.fill("all", size * PARTS)
        place.settle()
        with holdfast.open(place.url) as ledger, place.pinned() if pinned else nullcontext():
            ours.drain(ledger, "warm", sizes.warm_up)
            rates = [timed(size, lambda: ours.drain(ledger, "all", size)) for _ in range(PARTS)]
        written = place.events("succeeded")
        assert written == sizes.warm_up + size * PARTS
    what = host.name if pinned else f"{host.name}, none open"
    return Row(what, rates[-1], rates[0], TARGET if pinned else None, written, {"tenths": rates})
