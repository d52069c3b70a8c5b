"""A second worker process: with the default settings, that is two lanes each, and with one lane each."""

from bench import fleet
from bench.places import Host, PostgresHost
from bench.report import Heading, Row, compared
from bench.rounds import Turn
from bench.sizes import Sizes

HEADING = Heading("Drain by worker processes: two against one", ours="two", base="one")
TARGETS = {"": 1.3, "&lanes=1": 1.4}
"""By what is added to the ledger's address. A lane is a connection for claims or completions; one lane serves both."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    """On PostgreSQL; SQLite has one writer, however many processes there are."""
    if not isinstance(host, PostgresHost):
        return []
    turns: dict[tuple[str, int], list[Turn]] = {(options, count): [] for options in TARGETS for count in (1, 2)}
    for number in range(sizes.fleet_rounds):
        for options, processes in list(turns)[:: 1 if number % 2 else -1]:
            with host.place() as place:
                turns[options, processes].append(fleet.drain(place, f"{place.url}{options}", processes, sizes.fleet_jobs))
                assert place.events("succeeded") == sizes.fleet_jobs
    written = 3 * sizes.fleet_jobs
    return [
        compared(
            f"{host.name}, {'one lane' if options else 'two lanes'} each",
            turns[options, 2],
            turns[options, 1],
            target,
            written,
            ("two", "one"),
        )
        for options, target in TARGETS.items()
    ]
