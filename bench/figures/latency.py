"""Where the time of a lone job goes: from the enqueue call in one process to the handler in an idle worker process.

The times of the events are the ledger's. On PostgreSQL that is the server's clock, so the server must be on this machine.
"""

import random
import time
from collections.abc import Callable
from statistics import quantiles
from typing import NamedTuple

import holdfast
from bench import fleet
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median
from bench.sizes import Sizes

HEADING = Heading("The parts of a lone job's time, medians", ours="part", base="whole", judged="most", unit=" ms")
TARGETS_MS = {"SQLite": 2.0}
PAUSE_SECONDS = (0.1, 0.3)


class Lone(NamedTuple):
    """The times of one job, in seconds."""

    called: float
    enqueued: float
    returned: float
    claimed: float
    began: float


PARTS: dict[str, Callable[[Lone], float]] = {
    "call to handler": lambda at: at.began - at.called,
    "call to time of the enqueued event": lambda at: at.enqueued - at.called,
    "from there to time of the claimed event": lambda at: at.claimed - at.enqueued,
    "from there to handler": lambda at: at.began - at.claimed,
    "call to its return, beside the above": lambda at: at.returned - at.called,
}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as place, fleet.fleet(place.url) as workers, holdfast.open(place.url) as ledger:
        workers.start("work")
        time.sleep(fleet.IDLE_SECONDS)
        found = [_lone(ledger, workers) for _ in range(sizes.lone)]
        written = place.events("started")
        assert written == sizes.lone
    taken = {what: [part(one) * 1_000 for one in found] for what, part in PARTS.items()}
    whole, target = taken["call to handler"], TARGETS_MS.get(host.name)
    p99 = quantiles(whole, n=100, method="inclusive")[-1]
    return [
        *(
            Row(f"{host.name}, {what}", median(ms), median(whole), target if ms is whole else None, written, {"ms": ms})
            for what, ms in taken.items()
        ),
        Row(f"{host.name}, call to handler, p99", p99, median(whole), None, written, {"ms": whole}),
    ]


def _lone(ledger: holdfast.Ledger, workers: fleet.Fleet) -> Lone:
    time.sleep(random.uniform(*PAUSE_SECONDS))
    called = time.time()
    job = ledger.enqueue("tell")
    returned = time.time()
    began = workers.messages.wait("began", fleet.TELL_SECONDS).at
    enqueued, claimed, *_ = [event.received_at.timestamp() for event in ledger.events(job.id)]
    return Lone(called, enqueued, returned, claimed, began)
