"""What flow control costs: drains of jobs with limits, partitions and labels against a plain drain of the same run.

Also the claim of a job that may start, beside a million jobs whose limit is used up, and beside 10,000 jobs for single workers,
against one without them.
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
WORKERS = 10_000
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
    return [*(_drain(host, sizes, name, *case) for name, case in CASES.items()), _blocked(host, sizes), _routed(host, sizes)]


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
        done += ours.complete(ledger, [job.fence for job in jobs])
    return done


def _blocked(host: Host, sizes: Sizes) -> Row:
    """Claims beside jobs behind a used-up limit."""

    def fill(ledger: Ledger, queue: str) -> None:
        ledger.set_limit(queue, concurrent=1)
        ledger.enqueue("noop", queue=queue, limits=[queue])
        ledger.claim("bench", [queue], start=True)
        _fill(ledger, queue, sizes.large, partial(_drawing_on, queue))

    return _beside(host, sizes, f"{sizes.large:,} blocked", fill)


def _routed(host: Host, sizes: Sizes) -> Row:
    """Claims beside jobs of which each is for another worker."""

    def fill(ledger: Ledger, queue: str) -> None:
        _fill(ledger, queue, WORKERS, lambda number: {"for_worker": f"robot-{number}"})

    return _beside(host, sizes, f"{WORKERS:,} for other workers", fill)


def _beside(host: Host, sizes: Sizes, others: str, fill: Callable[[Ledger, str], None]) -> Row:
    """Claims of one free job each, with and without other jobs. The rates are claims a second."""
    with host.place() as place, holdfast.open(place.url) as ledger:
        fill(ledger, "beside")
        for queue in ("free", "beside"):
            _fill(ledger, queue, 2 * sizes.blocked_claims, lambda number: {"partition": f"p{number % 5}"})
        place.settle()
        for queue in ("free", "beside"):
            sum(_claims(ledger, queue, sizes.blocked_claims))
        beside, free = (list(_claims(ledger, queue, sizes.blocked_claims)) for queue in ("beside", "free"))
        events = place.events("claimed")
    rounds = {"with": [1 / one for one in beside], "without": [1 / one for one in free]}
    what = f"{host.name}, claim of a free job beside {others}"
    return Row(what, 1 / median(beside), 1 / median(free), 1 / SLOWER_MAX, events, rounds)


def _drawing_on(limit: str, _: int) -> dict[str, Any]:
    return {"limits": [limit]}


def _claims(ledger: Ledger, queue: str, count: int) -> Iterator[float]:
    for _ in range(count):
        began = time.perf_counter()
        found = ledger.claim("bench", [queue], start=True, keep=False)
        yield time.perf_counter() - began
        assert len(found) == 1
