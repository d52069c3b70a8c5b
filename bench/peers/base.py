"""What every contender offers: work off jobs that do nothing, begin a lone job quickly, survive a killed worker."""

from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from bench.rounds import Turn


class Absent(Exception):
    """This contender cannot take part here; says why."""


class Setting(NamedTuple):
    """Where a contender may live: its own empty database, a Redis server, a folder, and the interpreter it is installed for."""

    home: Path
    postgres_url: str
    redis_url: str | None
    python: Path
    node_modules: Path


class Peer(Protocol):
    name: str
    storage: Literal["postgres", "redis", "sqlite"]
    config: Literal["default", "tuned"]

    def prepare(self, setting: Setting) -> None:
        """Create tables and the like; raises Absent."""

    def drain(self, setting: Setting, jobs: int) -> Turn:
        """Jobs a second of ONE worker process, and the processor time for each: enqueue first, untimed; then from the worker's start of work (processes booted and connected, as far as the peer allows) until the last job is durably finished and the queue is empty, asked of the storage itself."""

    def latency(self, setting: Setting, jobs: int) -> list[float] | None:
        """Milliseconds from just before the enqueue call of a lone job in one process to its handler's first line in the idle worker process, one after another with a pause; None if it cannot be measured."""

    def recovery(self, setting: Setting, seconds_max: float) -> float | None:
        """Seconds from SIGKILL of the worker in mid-job until another worker process (already running) begins it again, with default settings; None where it did not within seconds_max."""
