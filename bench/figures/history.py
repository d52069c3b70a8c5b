"""The cost of a long history: a drain with very many finished jobs in the ledger, against one with none."""

import holdfast
from bench import ours, reports
from bench.places import Host, Place
from bench.report import Heading, Row, compared
from bench.rounds import Turn, counted, take_turns
from bench.sizes import Sizes

HEADING = Heading("Drain with finished jobs in the table against none", ours="with history", base="without")
TARGETS = {"": 0.8, ", by `holdfast worker run`": 0.9}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as old, host.place() as new:
        old.fill("past", sizes.history, finished=True)
        for place in (old, new):
            _fill(place, sizes)
        before = old.events("succeeded")
        with holdfast.open(old.url) as aged, holdfast.open(new.url) as fresh:
            for ledger in (aged, fresh):
                ours.drain(ledger, "warm", sizes.warm_up)
            turns = [
                take_turns(sizes.rounds, lambda n: _by_calls(old, aged, n, sizes), lambda n: _by_calls(new, fresh, n, sizes)),
                take_turns(
                    sizes.fleet_rounds,
                    lambda _: reports.drain(old, aged, sizes.fleet_jobs),
                    lambda _: reports.drain(new, fresh, sizes.fleet_jobs),
                ),
            ]
        written = old.events("succeeded") - before
        assert before == sizes.history
        drained = sizes.warm_up + sizes.rounds * sizes.per_round + sizes.fleet_rounds * sizes.fleet_jobs
        assert written == new.events("succeeded") == drained
    return [
        compared(f"{host.name}{what}", beside, alone, target, written, ("with history", "without"))
        for (what, target), (beside, alone) in zip(TARGETS.items(), turns, strict=True)
    ]


def _by_calls(place: Place, ledger: holdfast.Ledger, number: int, sizes: Sizes) -> Turn:
    size = sizes.per_round
    return counted(size, place.meter(), lambda: ours.drain(ledger, f"round-{number}", size))


def _fill(place: Place, sizes: Sizes) -> None:
    place.fill("warm", sizes.warm_up)
    for number in range(sizes.rounds):
        place.fill(f"round-{number}", sizes.per_round)
    place.settle()
