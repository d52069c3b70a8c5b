"""Heartbeats: one worker renews all its leases repeatedly, one event each."""

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row, compared
from bench.rounds import counted, take_turns
from bench.sizes import Sizes

HEADING = Heading("Heartbeats: one worker renews all its leases, at most 1,000 at once", judged="rate")
TARGETS = {"PostgreSQL": 25_000.0}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    leases = sizes.leases
    with host.place() as place:
        place.fill("ours", leases)
        place.fill("raw", leases)
        place.settle()
        with opened(place) as (ledger, raw):
            fences, chunks = ours.hold(ledger, "ours", leases), raw.hold("raw", leases)
            ours.beat(ledger, fences)
            raw.beat(chunks)
            mine, base = take_turns(
                sizes.beats,
                lambda _: counted(leases, place.meter(), lambda: ours.beat(ledger, fences)),
                lambda _: counted(leases, place.meter(), lambda: raw.beat(chunks)),
            )
        written = place.events("heartbeat")
        assert written == 2 * leases * (1 + sizes.beats)
    return [compared(host.name, mine, base, TARGETS.get(host.name), written)]
