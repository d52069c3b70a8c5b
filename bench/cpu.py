"""Processor time. Another process counts together with its child processes, also with those that have ended."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import psycopg

TICK = os.sysconf("SC_CLK_TCK")
PARENT, ENDED_CHILDREN = 1, slice(13, 15)
"""Fields of /proc/<pid>/stat, counted from the one after the name."""


class Cpu(NamedTuple):
    """Microseconds of processor time for each job."""

    client: float
    """The worker processes, or the benchmark itself."""
    server: float | None = None
    """All processes of the PostgreSQL server, with checkpoints and vacuums."""

    @classmethod
    def median(cls, found: Sequence[Self]) -> Self:
        servers = [one.server for one in found if one.server is not None]
        return cls(median(one.client for one in found), median(servers) if servers else None)

    def __str__(self) -> str:
        client = f"{self.client:,.1f} client"
        return client if self.server is None else f"{client} + {self.server:,.1f} server"


class Meter:
    """Count the processor time of clients, and of a PostgreSQL server, from its creation on."""

    def __init__(self, clients: Sequence[int] | None = None, watcher: "psycopg.Connection[Any] | None" = None) -> None:
        """Without `clients`, this process is counted. `watcher` is a connection to the server. Its backend is left out."""
        self._clients = clients
        self._watcher = None if watcher is None else watcher.info.backend_pid
        self._server = None if self._watcher is None else int(_stat(self._watcher)[PARENT])
        self._server_before = self._server_seconds()
        self._client_before = self._client_seconds()

    def spent(self, jobs: int) -> Cpu:
        each = 1e6 / max(1, jobs)
        client = (self._client_seconds() - self._client_before) * each
        return Cpu(client, None if self._server is None else (self._server_seconds() - self._server_before) * each)

    def _client_seconds(self) -> float:
        if self._clients is None:
            return time.process_time()
        children = _children()
        return sum(_seconds(pid, children) for pid in self._clients)

    def _server_seconds(self) -> float:
        return 0.0 if self._server is None else _seconds(self._server, _children(), self._watcher)


def _seconds(pid: int, children: dict[int, list[int]], without: int | None = None) -> float:
    """Processor seconds of a process and its descendants. What has ended is counted by the process that waited for it."""
    if pid == without:
        return 0.0
    own = 0.0
    with suppress(OSError):
        own = sum(map(int, _stat(pid)[ENDED_CHILDREN])) / TICK + time.clock_gettime(_clock(pid))
    return own + sum(_seconds(child, children, without) for child in children.get(pid, ()))


def _clock(pid: int) -> int:
    """The clock of a process's processor time, as clock_getcpuclockid(3) makes its number."""
    return (~pid << 3) | 2


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                found.setdefault(int(_stat(int(path.name))[PARENT]), []).append(int(path.name))
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
