"""The base of all sessions: it runs named statements and reads their rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.core.model import Micros

R = TypeVar("R")


class StatementSession(ABC):
    """One transaction that runs named statements.

    Rows are read by name. A row becomes a record, whose fields have the names of the statement's columns (a test compares them),
    or it is unpacked into names.
    """

    ledger_id: str

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    @abstractmethod
    def each(self, name: str, params: Sequence[dict[str, Any]]) -> None:
        """Run a statement that returns no rows, once for each of `params`."""

    @abstractmethod
    def now(self) -> Micros:
        """Return the ledger's current time."""

    @abstractmethod
    def stamp(self) -> Micros | None:
        """Return the time that a statement uses, or None if the statement reads the store's own clock."""

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any:
        """Return a list as a statement parameter."""

    def one(self, name: str, /, **params: Any) -> tuple[Any, ...] | None:
        """Run a statement and return its first row."""
        rows = self.rows(name, **params)
        return rows[0] if rows else None

    def records(self, record: Callable[..., R], name: str, /, **params: Any) -> list[R]:
        """Run a statement and return its rows as records."""
        return [record(*row) for row in self.rows(name, **params)]

    def record(self, record: Callable[..., R], name: str, /, **params: Any) -> R | None:
        """Run a statement and return its first row as a record."""
        row = self.one(name, **params)
        return None if row is None else record(*row)

    def values(self, name: str, /, **params: Any) -> list[Any]:
        """Run a statement with one column and return the value in each row."""
        return [value for (value,) in self.rows(name, **params)]

    def value(self, name: str, /, **params: Any) -> Any:
        """Run a statement with one column and return the value in its first row, None if there is no row."""
        for (value,) in self.rows(name, **params):
            return value
        return None
