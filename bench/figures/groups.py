"""The cost of groups: ends of jobs that are all in one group, in groups of ten, and in none, one call each, many at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import holdfast
from bench import ours
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes
from bench.work import KIND, RESULT, args, batches
from holdfast import Fence, Ledger

HEADING = Heading("Ends of jobs of one large group, a call and a transaction each", ours="one group", base="other")
TARGET = 0.9
EACH = 10
"""Jobs of a small group."""
SESSIONS = 8
"""Ledgers that complete jobs at the same time, each with connections of its own."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    count = sizes.grouped - sizes.grouped % EACH
    with host.place() as place, ExitStack() as stack:
        ledgers = [stack.enter_context(holdfast.open(place.url)) for _ in range(SESSIONS)]
        for each in (count, EACH, None):
            ends(ledgers, "warm", count, each)
        place.settle()
        large, small, plain = take_turns(
            sizes.rounds,
            lambda number: ends(ledgers, f"large-{number}", count, count),
            lambda number: ends(ledgers, f"small-{number}", count, EACH),
            lambda number: ends(ledgers, f"plain-{number}", count, None),
        )
        written = place.events("succeeded")
        assert written == 3 * count * (1 + sizes.rounds)
        assert ledgers[0].counts()["then"] == {"queued": (1 + sizes.rounds) * (1 + count // EACH)}
    rates = {"one group": large, "groups of ten": small, "no group": plain}
    return [
        Row(f"{host.name}, groups of ten", median(large), median(small), TARGET, written, rates),
        Row(f"{host.name}, no group", median(large), median(plain), None, written, rates),
    ]


def ends(ledgers: Sequence[Ledger], name: str, count: int, each: int | None) -> float:
    """Jobs ended a second, in closed groups of this size. The enqueues and claims are not counted."""
    ledger, queue = ledgers[0], f"{name}-{each}"
    groups = [] if each is None else [f"{queue}-{number}" for number in range(count // each)]
    for group in groups:
        ledger.group(group, then={"kind": KIND, "queue": "then"})
    number = 0
    for size in batches(count):
        numbers = range(number, number + size)
        of = {} if each is None else {n: {"group": groups[n // each]} for n in numbers}
        ledger.enqueue_many([{"kind": KIND, "queue": queue, "args": args(n), **of.get(n, {})} for n in numbers])
        number += size
    for group in groups:
        ledger.close_group(group)
    fences = ours.hold(ledger, queue, count)

    def complete(session: int, some: Sequence[Fence]) -> int:
        for fence in some:
            ledgers[session].complete(fence, RESULT)
        return len(some)

    with ThreadPoolExecutor(len(ledgers)) as pool:
        parts = [fences[session :: len(ledgers)] for session in range(len(ledgers))]
        return timed(count, lambda: sum(pool.map(complete, range(len(ledgers)), parts)))
