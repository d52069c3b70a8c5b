"""Supervised runs, as both stores keep them: one row a name."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from holdfast.core.model import Micros


class RunRow(NamedTuple):
    """What a supervisor last wrote of its run."""

    name: str
    body: str
    updated_at: Micros


class RunRows(ABC):
    """The part of a transaction that supervisors need."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def stamp(self) -> Micros | None: ...

    def find_run(self, name: str) -> RunRow | None:
        rows = self.rows("find_run", name=name)
        return RunRow(*rows[0]) if rows else None

    def runs(self, after: str, limit: int) -> list[RunRow]:
        """By name, after one."""
        return [RunRow(*row) for row in self.rows("runs", after=after, limit=limit)]

    def save_run(self, name: str, body: str) -> None:
        self.rows("save_run", name=name, body=body, now_at=self.stamp())
