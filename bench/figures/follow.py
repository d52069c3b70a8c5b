"""Following: how fast the events of a drain are read in their order, against how fast the drain has written them."""

from itertools import islice

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row
from bench.rounds import median, timed
from bench.sizes import Sizes
from holdfast import Ledger

HEADING = Heading("Following, in events/s, against the drain that wrote the events", ours="follow", base="drain")
EVENTS_OF_A_JOB = 3


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size, rounds = sizes.per_round, sizes.rounds + 1
    with host.place() as place:
        for number in range(rounds):
            place.fill(f"round-{number}", size)
        place.settle()
        with opened(place) as (ledger, _):
            _, *found = [_round(ledger, f"round-{number}", size) for number in range(rounds)]  # the first is a warm-up
        written = place.events("succeeded")
        assert written == rounds * size
    drained, followed = [one[0] for one in found], [one[1] for one in found]
    return [Row(host.name, median(followed), median(drained), None, written, {"follow": followed, "drain": drained})]


def _round(ledger: Ledger, queue: str, size: int) -> tuple[float, float]:
    start, events = ledger.position(), EVENTS_OF_A_JOB * size
    drained = EVENTS_OF_A_JOB * timed(size, lambda: ours.drain(ledger, queue, size))
    return drained, timed(events, lambda: sum(1 for _ in islice(ledger.follow(start, timeout=30), events)))
