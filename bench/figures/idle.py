"""A worker with nothing to do: memory, share of a core, statements it sends."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg

from bench import fleet
from bench.places import Host, PostgresHost
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading("An idle worker", ours="found", base="limit", judged="most", unit="")
MIB_MAX = {"PostgreSQL": 50.0, "SQLite": 35.0}
CORE_PERCENT_MAX = 1.0
QUERIES_MAX = 2.0
TICK = os.sysconf("SC_CLK_TCK")


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as place, fleet.fleet(place.url) as workers, no_autovacuum(host, place.url):
        worker = workers.start("work")
        time.sleep(sizes.settle_seconds)
        before, asked = core_seconds(worker.id), statements(place.url) if isinstance(host, PostgresHost) else 0
        time.sleep(sizes.idle_seconds)
        spent = 100 * (core_seconds(worker.id) - before) / sizes.idle_seconds
        rows = [
            limit_row(f"{host.name}, MiB", resident_mib(worker.id), MIB_MAX[host.name]),
            limit_row(f"{host.name}, % of a core", spent, CORE_PERCENT_MAX),
        ]
        if isinstance(host, PostgresHost):
            sent = (statements(place.url) - asked) / sizes.idle_seconds
            rows.append(limit_row(f"{host.name}, queries/s", sent, QUERIES_MAX))
        return rows


@contextmanager
def no_autovacuum(host: Host, url: str) -> Iterator[None]:
    """Keep PostgreSQL from transactions of its own, which would be counted too."""
    if not isinstance(host, PostgresHost):
        yield
        return
    _set_up(url, "ALTER SYSTEM SET autovacuum = off")
    try:
        yield
    finally:
        _set_up(url, "ALTER SYSTEM RESET autovacuum")


def _set_up(url: str, command: LiteralString) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(command)
        connection.execute("SELECT pg_reload_conf()")


def limit_row(what: str, found: float, most: float, rounds: dict[str, list[float]] | None = None, events: int = 0) -> Row:
    return Row(what, found, most, most, events, rounds or {"found": [found]})


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1_024


def core_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def statements(url: str) -> int:
    """Transactions of the database: an idle worker's statements are one each, but for three a claim.

    Ours are in another database, and are not counted.
    """
    address = url.partition("?")[0]
    with psycopg.connect(address, autocommit=True) as connection:
        name = connection.info.dbname
    with psycopg.connect(address, dbname="template1", autocommit=True) as connection:
        found = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s", [name]
        ).fetchone()
        assert found is not None
        return int(found[0])
