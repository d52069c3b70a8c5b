"""Query the storage itself for unfinished jobs, instead of trusting the contender's report."""

import time
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg

from bench.cpu import Meter

LOOK_SECONDS = 0.002
"""The poll interval once the last handler has run."""

GLANCE_SECONDS = 0.05
"""The poll interval while handlers still run, long enough to cost them little."""


def wait_until_empty(left: Callable[[], int], seconds: float) -> float:
    """The time when no unfinished job was left."""
    until = time.monotonic() + seconds
    while count := left():
        if time.monotonic() > until:
            raise TimeoutError(f"{count} jobs are unfinished {seconds:g} s after the last handler ran")
        time.sleep(LOOK_SECONDS)
    return time.time()


def watch(left: Callable[[], int], until: float) -> tuple[int, float]:
    """Wait for an empty queue or until the given time, and return the number of unfinished jobs."""
    while (count := left()) and time.time() < until:
        time.sleep(GLANCE_SECONDS)
    return count, time.time()


class Postgres:
    """Counts with one statement, on a connection that is open before the measurement."""

    def __init__(self, url: str, statement: str) -> None:
        # The processor time of the counting is left out by its backend, so no parallel workers help with it.
        self._connection = psycopg.connect(url, autocommit=True, options="-c max_parallel_workers_per_gather=0")
        self._statement = statement

    def left(self) -> int:
        found = self._connection.execute(self._statement.encode()).fetchone()
        assert found is not None
        return int(found[0])

    def settle(self) -> None:
        """Run ANALYZE, so that every contender starts with statistics."""
        self._connection.execute("ANALYZE")
        self._connection.execute("CHECKPOINT")

    def meter(self, worker: int) -> Meter:
        return Meter([worker], self._connection)

    def close(self) -> None:
        self._connection.close()


class Sqlite:
    def __init__(self, path: Path, statement: str) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(10_000)
        self._statement = statement

    def left(self) -> int:
        return int(self._connection.execute(self._statement).get)

    def settle(self) -> None:
        """Nothing to do: no other contender uses the file."""

    def meter(self, worker: int) -> Meter:
        return Meter([worker])

    def close(self) -> None:
        self._connection.close()
