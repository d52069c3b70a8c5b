"""Drain a queue: claim with start, complete, three events a job, each batch durable before the next."""

from collections.abc import Callable

from bench import ours
from bench.places import Host, PostgresHost, opened
from bench.report import Heading, Row, compared
from bench.rounds import Turn, counted, take_turns
from bench.sizes import Sizes

HEADING = Heading("Drain: claim and start, complete; batches of 500, one thread")
TARGETS = {"PostgreSQL": 0.6, "SQLite": 0.5}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size = sizes.per_round
    with host.place() as place:
        with opened(place) as (ledger, raw):
            drains: dict[str, Callable[[str, int], int]] = {
                "ours": lambda queue, count: ours.drain(ledger, queue, count),
                "raw": raw.drain,
            }
            if isinstance(host, PostgresHost):
                drains["lanes"] = lambda queue, count: ours.drain_in_two_lanes(ledger, queue, count)
            for name in drains:
                place.fill(f"{name}-warm", sizes.warm_up)
                for number in range(sizes.rounds):
                    place.fill(f"{name}-{number}", size)
            place.settle()
            for name, drain in drains.items():
                drain(f"{name}-warm", sizes.warm_up)

            def turn(name: str, number: int) -> Turn:
                return counted(size, place.meter(), lambda: drains[name](f"{name}-{number}", size))

            mine, bare, *two = take_turns(sizes.rounds, *(lambda n, name=name: turn(name, n) for name in drains))
        written = place.events("succeeded")
        assert written == len(drains) * (sizes.warm_up + sizes.rounds * size)
        assert written == place.events("claimed") == place.events("started")
    return [
        compared(host.name, mine, bare, TARGETS[host.name], written),
        *(compared(f"{host.name}, two lanes", lanes, bare, None, written) for lanes in two),
    ]
