"""Sealing: the speed of a sealer alone, and how much it slows down a concurrent drain."""

from collections.abc import Callable
from pathlib import Path

import holdfast
from bench import ours, sealer
from bench.places import Host, Place, PostgresHost
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes
from holdfast import Ledger
from holdfast.services.sealer import Sealer

HEADING = Heading("Sealing: a drain beside a sealer against one alone; a sealer against that drain's events", "sealed", "bare")
EVENTS_OF_A_JOB = 3
DRAIN_TARGET = 0.85
Drain = Callable[[Ledger, str, int], int]


def measure(host: Host, sizes: Sizes) -> list[Row]:
    drains: dict[str, Drain] = {"": ours.drain}
    if isinstance(host, PostgresHost):
        drains[", two lanes"] = ours.drain_in_two_lanes
    rows = [_beside(host, sizes, f"{host.name}{name}", drain) for name, drain in drains.items()]
    return [*rows, _alone(host, sizes, rows[-1])]


def _beside(host: Host, sizes: Sizes, name: str, drain: Drain) -> Row:
    """Rounds with and without a sealer take turns on one ledger."""
    size = sizes.per_round
    lags: list[float] = []
    waits: list[float] = []
    with host.place() as place, sealer.home() as home:
        key = sealer.enrolled_key(place.url, home)
        for contender in ("alone", "beside"):
            place.fill(f"{contender}-warm", sizes.warm_up)
            for number in range(sizes.rounds):
                place.fill(f"{contender}-{number}", size)
        with holdfast.open(place.url) as ledger:

            def alone(queue: str, count: int) -> float:
                # Earlier writes are on disk before each round, so that the next drain does not pay for the sealer.
                place.settle()
                return timed(count, lambda: drain(ledger, queue, count))

            def beside(queue: str, count: int) -> float:
                with sealer.sealing(place.url, key):
                    rate = alone(queue, count)
                    lags.append(sealer.behind(ledger))
                    waits.append(sealer.caught_up(ledger))
                return rate

            alone("alone-warm", sizes.warm_up)
            beside("beside-warm", sizes.warm_up)
            bare, sealed = take_turns(
                sizes.rounds,
                lambda n: alone(f"alone-{n}", size),
                lambda n: beside(f"beside-{n}", size),
            )
        written = place.events("succeeded")
    told = f"{name} drain ({median(lags):,.0f} events behind at its end, sealed {median(waits):.1f} s later)"
    return Row(told, median(sealed), median(bare), DRAIN_TARGET, written, {"beside": sealed, "alone": bare})


def _alone(host: Host, sizes: Sizes, drained: Row) -> Row:
    with host.place() as place, sealer.home() as home:
        key = sealer.enrolled_key(place.url, home)
        place.fill("done", sizes.jobs, finished=True)
        place.settle()
        rate = _sealed(place, key)
        written = place.events("succeeded")
    return Row(f"{host.name} sealer, events", rate, EVENTS_OF_A_JOB * drained.base, 1.0, written, {"alone": [rate]})


def _sealed(place: Place, key: Path) -> float:
    with holdfast.open(place.url, keys=[key]) as ledger, Sealer(ledger) as alone:
        events = sum(place.events(kind) for kind in ("enqueued", "claimed", "started", "succeeded"))
        return timed(events + len(ledger.keys()), lambda: _size_of(alone))


def _size_of(alone: Sealer) -> int:
    done = alone.seal_all()
    assert done is not None
    return done.sealed
