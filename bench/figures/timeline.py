"""The timeline of a job with 10,000 heartbeats, in milliseconds: plain ones, and ones with a stage."""

import time

import holdfast
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median
from bench.sizes import Sizes
from bench.work import KIND
from holdfast import Ledger

HEADING = Heading("Timeline of a job with 10,000 heartbeats, in ms", ours="with a stage", base="plain", judged="most", unit="")
TARGET = 50.0
CALLS = 7
POLICY: holdfast.PolicyFields = {"lease_ttl": "3600s", "heartbeat_interval": "600s"}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as place, holdfast.open(place.url) as ledger:
        staged, plain = (_measured(ledger, queue, sizes.leases) for queue in ("staged", "plain"))
        written = place.events("heartbeat")
    return [Row(host.name, median(staged), median(plain), TARGET, written, {"with a stage": staged, "plain": plain})]


def _measured(ledger: Ledger, queue: str, beats: int) -> list[float]:
    """Milliseconds of each of some calls."""
    job = ledger.enqueue(KIND, queue=queue, policy=POLICY)
    [held] = ledger.claim("bench", [queue], start=True)
    for number in range(beats):
        ledger.heartbeat(held.fence, stage=f"S{number % 7}" if queue == "staged" else None)
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        found = ledger.timeline(job.id)
        times.append((time.perf_counter() - began) * 1_000)
        assert found.beats.n == beats
    return times
