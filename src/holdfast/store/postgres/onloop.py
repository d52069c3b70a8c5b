"""A psycopg.AsyncConnection for a thread that works for its event loop. Each statement runs on the loop."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from holdfast.store.awaiting import on_loop
from holdfast.store.postgres.values import read_binary


class LoopCursor:
    """What the store uses of a psycopg.Cursor."""

    def __init__(self, cursor: "psycopg.AsyncCursor[tuple[Any, ...]]") -> None:
        self._cursor = cursor
        self._rows: list[tuple[Any, ...]] = []

    @property
    def description(self) -> Any:
        return self._cursor.description

    def execute(self, query: str, params: Any = None) -> "LoopCursor":
        self._rows = on_loop(lambda: self._execute(query, params))
        return self

    async def _execute(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        await self._cursor.execute(query.encode(), params)
        return await self._cursor.fetchall() if self._cursor.description else []

    def executemany(self, query: str, params: Sequence[Any]) -> None:
        on_loop(lambda: self._cursor.executemany(query.encode(), params))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class LoopConnection:
    """What the store uses of a psycopg.Connection."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self.below = connection

    @property
    def closed(self) -> bool:
        return self.below.closed

    @property
    def autocommit(self) -> bool:
        return self.below.autocommit

    @property
    def prepare_threshold(self) -> int | None:
        return self.below.prepare_threshold

    @prepare_threshold.setter
    def prepare_threshold(self, value: int | None) -> None:
        self.below.prepare_threshold = value

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self.below.info

    def cursor(self) -> LoopCursor:
        made = psycopg.AsyncCursor(self.below, row_factory=tuple_row)
        read_binary(made)
        return LoopCursor(made)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.below.transaction()
        on_loop(block.__aenter__)
        try:
            yield
        except BaseException:
            found = sys.exc_info()
            on_loop(lambda: block.__aexit__(*found))
            raise
        on_loop(lambda: block.__aexit__(None, None, None))
