"""The overview of a ledger with a million jobs against that of one with a thousand, in microseconds."""

import time

import holdfast
from bench.places import Host, Place
from bench.report import Heading, Row
from bench.rounds import median, take_turns
from bench.sizes import Sizes
from holdfast import Ledger

HEADING = Heading(
    "Overview of many jobs against few, a tenth of them queued, in µs", ours="many", base="few", judged="ratio_most", unit=""
)
TARGET = 2.0
QUEUES = 10
FEWER = 1_000
"""How many times fewer jobs the small ledger has."""
CALLS = 5


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as full, host.place() as small:
        for place, jobs in ((full, sizes.large), (small, max(QUEUES, sizes.large // FEWER))):
            _fill(place, jobs)
        with holdfast.open(full.url) as crowded, holdfast.open(small.url) as empty:
            for ledger in (crowded, empty):
                while ledger.history_writer.advance(100_000):
                    pass
                called(ledger)
            many, few = take_turns(sizes.rounds, lambda _: called(crowded), lambda _: called(empty))
            assert sum(crowded.overview().counts.values()) > sum(empty.overview().counts.values())
        written = full.events("enqueued")
    return [Row(host.name, median(many), median(few), TARGET, written, {"many": many, "few": few})]


def _fill(place: Place, jobs: int) -> None:
    place.fill("past", jobs - jobs // 10, finished=True)
    for number in range(QUEUES):
        place.fill(f"queue-{number}", max(1, jobs // 10 // QUEUES))
    place.settle()


def called(ledger: Ledger) -> float:
    """Microseconds of one call, the median of some."""
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        ledger.overview()
        times.append((time.perf_counter() - began) * 1_000_000)
    return median(times)
