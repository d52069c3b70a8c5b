"""The cost of a long history: a drain with very many finished jobs in the ledger, against one with none."""

import holdfast
from bench import ours
from bench.places import Host, Place
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes

HEADING = Heading("Drain with finished jobs in the table against none", ours="with history", base="without")
TARGET = 0.8


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size = sizes.per_round
    with host.place() as old, host.place() as new:
        old.fill("past", sizes.history, finished=True)
        for place in (old, new):
            _fill(place, sizes)
        before = old.events("succeeded")
        with holdfast.open(old.url) as aged, holdfast.open(new.url) as fresh:
            for ledger in (aged, fresh):
                ours.drain(ledger, "warm", sizes.warm_up)
            beside, alone = take_turns(
                sizes.rounds,
                lambda n: timed(size, lambda: ours.drain(aged, f"round-{n}", size)),
                lambda n: timed(size, lambda: ours.drain(fresh, f"round-{n}", size)),
            )
        written = old.events("succeeded") - before
        assert before == sizes.history
        assert written == new.events("succeeded") == sizes.warm_up + sizes.rounds * size
    rounds = {"with history": beside, "without": alone}
    return [Row(host.name, median(beside), median(alone), TARGET, written, rounds)]


def _fill(place: Place, sizes: Sizes) -> None:
    place.fill("warm", sizes.warm_up)
    for number in range(sizes.rounds):
        place.fill(f"round-{number}", sizes.per_round)
    place.settle()
