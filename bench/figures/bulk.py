"""Bulk enqueue: many jobs in one call."""

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row, compared
from bench.rounds import Turn, counted, take_turns
from bench.sizes import Sizes

HEADING = Heading("Bulk enqueue: batches of 500, one thread")
TARGET = 0.6


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size = sizes.per_round
    with host.place() as place:
        before = place.events("enqueued")
        with opened(place) as (ledger, raw):

            def through_us(_: int, count: int = size) -> Turn:
                prepared = ours.items("ours", count)
                return counted(count, place.meter(), lambda: ours.enqueue(ledger, prepared))

            def bare(_: int, count: int = size) -> Turn:
                prepared = raw.prepare_enqueue("raw", count)
                return counted(count, place.meter(), lambda: raw.enqueue(prepared))

            through_us(0, sizes.warm_up)
            bare(0, sizes.warm_up)
            place.settle()
            mine, base = take_turns(sizes.rounds, through_us, bare)
        written = place.events("enqueued") - before
        assert written == 2 * (sizes.warm_up + sizes.rounds * size)
    return [compared(host.name, mine, base, TARGET, written)]
