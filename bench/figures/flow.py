"""What flow control costs: drains of jobs with limits, partitions and labels against a plain drain of the same run.

Also the claim of a job that may start, beside a million jobs whose limit is used up, against one without them.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import holdfast
from bench import ours
from bench.places import Host
from bench.report import Heading, Row, compared
from bench.rounds import Turn, counted, take_turns
from bench.sizes import Sizes
from bench.work import BATCH
from holdfast import Ledger

HEADING = Heading("Flow control: batches of 500, one thread", ours="with", base="without")
KEYS = 10_000
ENQUEUED_AT_ONCE = 5_000
LABELS = (["gpu"], ["gpu", "zone:berlin"], ["gripper"])
SLOWER_MAX = 3.0


def keyed(number: int) -> dict[str, Any]:
    return {"args": {"tenant": f"t{number % KEYS}"}, "limits": ["api"]}


def partitioned(number: int) -> dict[str, Any]:
    return {"partition": f"t{number % KEYS}"}


def labelled(number: int) -> dict[str, Any]:
    return {"requires": LABELS[number % len(LABELS)]}


CASES: dict[str, tuple[Callable[[int], dict[str, Any]], float]] = {
    "one limit with 10,000 keys": (keyed, 0.5),
    "10,000 partitions": (partitioned, 0.6),
    "labels": (labelled, 0.75),
}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    return [*(_drain(host, sizes, name, *case) for name, case in CASES.items()), _blocked(host, sizes)]


def _drain(host: Host, sizes: Sizes, name: str, options: Callable[[int], dict[str, Any]], target: float) -> Row:
    size = sizes.per_round
    with host.place() as place, holdfast.open(place.url) as ledger:
        ledger.set_limit("api", concurrent=8, by="args.tenant")
        count = size * (sizes.rounds + 1)
        _fill(ledger, "flow", count, options)
        place.fill("plain", count)
        place.settle()
        drains: dict[str, Callable[[], int]] = {
            "flow": lambda: _flow(ledger, "flow", size),
            "plain": lambda: ours.drain(ledger, "plain", size),
        }
        for drain in drains.values():
            drain()  # to warm up

        def turn(kind: str) -> Turn:
            return counted(size, place.meter(), drains[kind])

        found, plain = take_turns(sizes.rounds, lambda _: turn("flow"), lambda _: turn("plain"))
        written = place.events("succeeded")
        assert written == 2 * count
    return compared(f"{host.name}, {name}", found, plain, target, written, ("with", "without"))


def _fill(ledger: Ledger, queue: str, count: int, options: Callable[[int], dict[str, Any]]) -> None:
    for begin in range(0, count, ENQUEUED_AT_ONCE):
        numbers = range(begin, min(count, begin + ENQUEUED_AT_ONCE))
        ledger.enqueue_many([{"kind": "noop", "queue": queue, **options(number)} for number in numbers])


def _flow(ledger: Ledger, queue: str, count: int) -> int:
    """Claim with start, complete."""
    labels = sorted({label for some in LABELS for label in some})
    done = 0
    while done < count:
        jobs = ledger.claim("bench", [queue], limit=min(BATCH, count - done), start=True, labels=labels)
        done += ours.complete(ledger, [job.fence for job in jobs if job.fence is not None])
    return done


def _blocked(host: Host, sizes: Sizes) -> Row:
    """Claims of one free job each, with and without jobs behind a used-up limit. The rates are claims a second."""
    with host.place() as place, holdfast.open(place.url) as ledger:
        for queue, blocked in (("free", 0), ("behind", sizes.large)):
            ledger.set_limit(queue, concurrent=1)
            ledger.enqueue("noop", queue=queue, limits=[queue])
            ledger.claim("bench", [queue], start=True)
            _fill(ledger, queue, blocked, partial(_drawing_on, queue))
            _fill(ledger, queue, 2 * sizes.blocked_claims, lambda number: {"partition": f"p{number % 5}"})
        place.settle()
        for queue in ("free", "behind"):
            sum(_claims(ledger, queue, sizes.blocked_claims))
        behind, free = (list(_claims(ledger, queue, sizes.blocked_claims)) for queue in ("behind", "free"))
        events = place.events("claimed")
    rounds = {"with": [1 / one for one in behind], "without": [1 / one for one in free]}
    what = f"{host.name}, claim of a free job beside {sizes.large:,} blocked"
    return Row(what, 1 / median(behind), 1 / median(free), 1 / SLOWER_MAX, events, rounds)


def _drawing_on(limit: str, _: int) -> dict[str, Any]:
    return {"limits": [limit]}


def _claims(ledger: Ledger, queue: str, count: int) -> Iterator[float]:
    for _ in range(count):
        began = time.perf_counter()
        found = ledger.claim("bench", [queue], start=True, keep=False)
        yield time.perf_counter() - began
        assert len(found) == 1
