"""Asking the storage itself whether all is done, so that no contender is taken at its word."""

import time
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg

LOOK_SECONDS = 0.002
"""Between two looks, once the last handler has run."""

GLANCE_SECONDS = 0.05
"""Between two looks while handlers still run, so that looking costs them little."""


def wait_until_empty(left: Callable[[], int], seconds: float) -> float:
    """When nothing was left any more."""
    until = time.monotonic() + seconds
    while count := left():
        if time.monotonic() > until:
            raise TimeoutError(f"{count} jobs are unfinished {seconds:g} s after the last handler ran")
        time.sleep(LOOK_SECONDS)
    return time.time()


def watch(left: Callable[[], int], until: float) -> tuple[int, float]:
    """How much was left at the end, which comes with an empty queue or at the given time."""
    while (count := left()) and time.time() < until:
        time.sleep(GLANCE_SECONDS)
    return count, time.time()


class Postgres:
    """Counts with one statement, on a connection that is open before the measurement."""

    def __init__(self, url: str, statement: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._statement = statement

    def left(self) -> int:
        found = self._connection.execute(self._statement.encode()).fetchone()
        assert found is not None
        return int(found[0])

    def settle(self) -> None:
        """What the server does by itself sooner or later, so that every contender meets it with statistics."""
        self._connection.execute("ANALYZE")
        self._connection.execute("CHECKPOINT")

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
        """Nothing: a file that contenders share with nobody is as they left it."""

    def close(self) -> None:
        self._connection.close()
