"""Drain a queue: claim with start, complete, three events a job, each batch durable before the next."""

from bench import ours
from bench.places import Host, PostgresHost, opened
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes

HEADING = Heading("Drain: claim and start, complete; batches of 500, one thread")
TARGETS = {"PostgreSQL": 0.6, "SQLite": 0.5}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size, lanes = sizes.per_round, isinstance(host, PostgresHost)
    with host.place() as place:
        for name in ("ours", "raw", *(["lanes"] if lanes else [])):
            place.fill(f"{name}-warm", sizes.warm_up)
            for number in range(sizes.rounds):
                place.fill(f"{name}-{number}", size)
        place.settle()
        before = place.events("succeeded")
        with opened(place) as (ledger, raw):
            ours.drain(ledger, "ours-warm", sizes.warm_up)
            raw.drain("raw-warm", sizes.warm_up)
            contenders = [
                lambda n: timed(size, lambda: ours.drain(ledger, f"ours-{n}", size)),
                lambda n: timed(size, lambda: raw.drain(f"raw-{n}", size)),
            ]
            if lanes:
                ours.drain_in_two_lanes(ledger, "lanes-warm", sizes.warm_up)
                contenders.append(lambda n: timed(size, lambda: ours.drain_in_two_lanes(ledger, f"lanes-{n}", size)))
            mine, bare, *two = take_turns(sizes.rounds, *contenders)
        written = place.events("succeeded") - before
        assert written == len(contenders) * (sizes.warm_up + sizes.rounds * size)
        assert written == place.events("claimed") == place.events("started")
    return [
        Row(host.name, median(mine), median(bare), TARGETS[host.name], written, {"ours": mine, "raw": bare}),
        *(Row(f"{host.name}, two lanes", median(rates), median(bare), None, written, {"ours": rates}) for rates in two),
    ]
