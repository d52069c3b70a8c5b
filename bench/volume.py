"""Bytes that a ledger has written, and bytes that it takes up, for any layout of its tables."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg


class Volume(Protocol):
    what_is_written: str

    def written(self) -> int:
        """Bytes written so far. Only differences have a meaning."""

    def stored(self) -> int:
        """Bytes of the tables and indexes, after a checkpoint."""


class SqliteVolume:
    what_is_written = "written to the log and by checkpoints"

    def __init__(self, path: Path, writers: Sequence[int]) -> None:
        """`writers` are the processes that use the file. Checkpoints of this process are counted too."""
        self._path = path
        self._writers = {*writers, os.getpid()}

    def written(self) -> int:
        """By the write calls of the processes: the kernel may combine writes of the same page."""
        return sum(_written_by(pid) for pid in self._writers)

    def stored(self) -> int:
        connection = apsw.Connection(str(self._path))
        try:
            connection.set_busy_timeout(10_000)
            connection.pragma("wal_checkpoint", "TRUNCATE")
        finally:
            connection.close()
        return self._path.stat().st_size


class PostgresVolume:
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        """The WAL is that of the whole server, the size that of the connection's database."""
        self._connection = connection
        self.what_is_written = f"WAL, full_page_writes {self._one('SHOW full_page_writes')}"

    def written(self) -> int:
        return int(self._one("SELECT pg_current_wal_lsn() - '0/0'"))

    def stored(self) -> int:
        self._connection.execute("CHECKPOINT")
        return int(self._one("SELECT pg_database_size(current_database())"))

    def _one(self, text: str) -> Any:
        found = self._connection.execute(text.encode()).fetchone()
        assert found is not None
        return found[0]


def _written_by(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))
