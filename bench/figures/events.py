"""The history of one job with 100 events that was claimed and renewed together with 499 others."""

import time

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row
from bench.rounds import median
from bench.sizes import Sizes
from bench.work import BATCH

HEADING = Heading(
    "The history of a job with 100 events, claimed among 500", ours="median", base="limit", judged="most", unit=" ms"
)
TARGET_MS = 3.0
EVENTS = 100
FIRST = 3
"""Events without heartbeats: enqueued, claimed, started."""
TIMES = 50


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as place:
        place.fill("ours", BATCH)
        with opened(place) as (ledger, _):
            fences = ours.claim(ledger, "ours", BATCH)
            for _ in range(EVENTS - FIRST):
                ours.beat(ledger, fences)
            place.settle()
            taken, meter = [], place.meter()
            for fence in fences[:: BATCH // TIMES]:
                began = time.perf_counter()
                found = ledger.events(fence.job_id)
                taken.append((time.perf_counter() - began) * 1_000)
                assert len(found) == EVENTS
            cpu = meter.spent(len(taken))
        written = place.events("heartbeat")
        assert written == BATCH * (EVENTS - FIRST)
    return [Row(host.name, median(taken), TARGET_MS, TARGET_MS, written, {"ms": taken}, [cpu])]
