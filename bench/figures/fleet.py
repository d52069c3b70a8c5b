"""A second worker process: each with one lane, that is one connection for claims and completions."""

from bench import fleet
from bench.places import Host, PostgresHost
from bench.report import Heading, Row
from bench.rounds import median
from bench.sizes import Sizes

HEADING = Heading("Drain by workers with one lane each: two processes against one", ours="two", base="one")
TARGET = 1.4


def measure(host: Host, sizes: Sizes) -> list[Row]:
    """On PostgreSQL; SQLite has one writer, however many processes there are."""
    if not isinstance(host, PostgresHost):
        return []
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(sizes.fleet_rounds):
        for processes in (1, 2) if number % 2 else (2, 1):
            with host.place() as place:
                rates[processes].append(fleet.drain(place, f"{place.url}&lanes=1", processes, sizes.fleet_jobs))
    rounds = {"one": rates[1], "two": rates[2]}
    return [Row(host.name, median(rates[2]), median(rates[1]), TARGET, 3 * sizes.fleet_jobs, rounds)]
