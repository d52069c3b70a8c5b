"""Bytes a job: what a bulk enqueue and a drain write, and how much larger the ledger is afterwards."""

from collections.abc import Callable

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row
from bench.sizes import Sizes
from bench.volume import Volume

HEADING = Heading("Bytes a job: enqueue and drain in batches of 500", unit=" B")


def measure(host: Host, sizes: Sizes) -> list[Row]:
    jobs = sizes.fleet_jobs
    with host.place() as place, opened(place) as (ledger, _):

        def through_us() -> int:
            ours.enqueue(ledger, ours.items("bytes", jobs))
            return ours.drain(ledger, "bytes", jobs)

        volume = place.volume()
        mine, events = _bytes(volume, through_us, jobs), place.events("succeeded")
    with host.place() as place, opened(place) as (_, raw):

        def bare() -> int:
            raw.enqueue(raw.prepare_enqueue("bytes", jobs))
            return raw.drain("bytes", jobs)

        base = _bytes(place.volume(), bare, jobs)
        assert events == place.events("succeeded")
    names = volume.what_is_written, "tables and indexes afterwards"
    return [
        Row(f"{host.name}, {name}", found, beside, None, events, {"ours": [found], "raw": [beside]})
        for name, found, beside in zip(names, mine, base, strict=True)
    ]


def _bytes(volume: Volume, work: Callable[[], int], jobs: int) -> tuple[float, float]:
    """Bytes written and bytes kept for each job."""
    stored, written = volume.stored(), volume.written()
    assert work() == jobs
    return (volume.written() - written) / jobs, (volume.stored() - stored) / jobs
