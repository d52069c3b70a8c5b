"""A sweep over many held leases of which none is due."""

import time

import holdfast
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median
from bench.sizes import Sizes
from bench.work import BATCH, KIND, batches

HEADING = Heading("A sweep over held leases that are not due", ours="median", base="limit", judged="most", unit=" ms")
TARGET_MS = 20.0
WORKER = "bench"
POLICY = {"lease_ttl": "1h", "heartbeat_interval": "1h"}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    return [_row(host, sizes, "claimed by 500", BATCH), _row(host, sizes, "claimed one by one", 1)]


def _row(host: Host, sizes: Sizes, what: str, at_once: int) -> Row:
    with host.place() as place, holdfast.open(place.url) as ledger:
        for size in batches(sizes.leases):
            ledger.enqueue_many([{"kind": KIND, "queue": "held", "policy": POLICY}] * size)
        held = [len(ledger.claim(WORKER, ["held"], limit=size, start=True)) for size in batches(sizes.leases, at_once)]
        assert sum(held) == sizes.leases
        place.settle()
        taken, cpu = [], []
        for _ in range(sizes.sweeps):
            time.sleep(sizes.sweep_pause)  # a sweep skips what an earlier one has checked shortly before
            meter, began = place.meter(), time.perf_counter()
            made = ledger.sweep()
            taken.append((time.perf_counter() - began) * 1_000)
            cpu.append(meter.spent(1))
            assert made == {}, made
        written = place.events("claimed")
        assert written == sizes.leases
    return Row(f"{host.name}, {what}", median(taken), TARGET_MS, TARGET_MS, written, {"ms": taken}, cpu)
