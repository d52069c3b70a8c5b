"""Counting the events of a drain for totals and history, against the drain that wrote them, in jobs/s."""

from functools import partial

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row, compared
from bench.rounds import Turn, counted
from bench.sizes import Sizes
from holdfast import Ledger
from holdfast.services.history import PAGE_EVENTS

HEADING = Heading("Counting events for totals and history, against the drain that wrote them", ours="count", base="drain")


def measure(host: Host, sizes: Sizes) -> list[Row]:
    size, rounds = sizes.per_round, sizes.rounds + 1
    with host.place() as place:
        for number in range(rounds):
            place.fill(f"round-{number}", size)
        place.settle()
        with opened(place) as (ledger, _):
            _count(ledger)
            drains: list[Turn] = []
            counts: list[Turn] = []
            for number in range(rounds):
                drains.append(counted(size, place.meter(), partial(ours.drain, ledger, f"round-{number}", size)))
                counts.append(counted(size, place.meter(), partial(_count, ledger, size)))
            assert ledger.job_totals().statuses["succeeded"] == rounds * size
        written = place.events("succeeded")
    return [compared(host.name, counts[1:], drains[1:], None, written, ("count", "drain"))]  # the first is a warm-up


def _count(ledger: Ledger, jobs: int = 0) -> int:
    while ledger.history_writer.advance(PAGE_EVENTS):
        pass
    return jobs
