"""Conversion of values to and from PostgreSQL: times as microseconds, array literals built here where that is faster."""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row

from holdfast.core.model import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POSTGRES_EPOCH_US = 946_684_800_000_000
"""The microseconds from 1970 to 2000. PostgreSQL counts from 2000."""
_unpack = struct.Struct("!q").unpack


class MicrosLoader(Loader):
    """Loads a binary timestamptz, which is microseconds since 2000."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Micros:
        return int(_unpack(data)[0]) + POSTGRES_EPOCH_US


class SecondsLoader(Loader):
    """Loads a binary interval as seconds. Only for differences of two clock readings: days and months are ignored."""

    format = Format.BINARY

    def load(self, data: Buffer) -> float:
        return int(_unpack(data[:8])[0]) / 1_000_000


def binary_cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """Return a cursor with Holdfast's own settings, independent of the connection's."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    read_binary(cursor)
    return cursor


def read_binary(cursor: "psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]") -> None:
    """Make a cursor receive values in binary form, times as microseconds."""
    cursor.format = Format.BINARY
    cursor.adapters.register_loader("timestamptz", MicrosLoader)
    cursor.adapters.register_loader("interval", SecondsLoader)


def raw_cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """Return a cursor that gives times as microseconds since 2000. Without a Python loader, large batches are faster."""
    cursor = binary_cursor(connection)
    int_loader = cursor.adapters.get_loader(cursor.adapters.types["int8"].oid, Format.BINARY)
    assert int_loader is not None
    cursor.adapters.register_loader("timestamptz", int_loader)
    return cursor


def to_param(name: str, value: Any) -> Any:
    """Convert a parameter for the driver. A name that ends in `_at` means that the value is a time."""
    if value is not None and (name.endswith("_at") or name == "at"):
        return to_timestamp(value)
    return value


def to_timestamp(at: Micros | None) -> datetime | None:
    return None if at is None else _EPOCH + timedelta(microseconds=at)


def plain_array(values: Iterable[Any]) -> str:
    """Return an array literal of numbers, hexadecimal texts and NULLs, which need no quoting."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def text_array(values: Sequence[str | None]) -> str:
    """Return an array literal of texts. Texts repeat often within a batch, so each different one is quoted once."""
    quoted = {value: "NULL" if value is None else _quoted(value) for value in set(values)}
    return "{" + ",".join([quoted[value] for value in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def bytes_array(values: Iterable[bytes | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else '"\\\\x' + value.hex() + '"' for value in values]) + "}"


def time_array(values: Sequence[Micros | None]) -> str:
    """Return an array literal of times. Times repeat often within a batch, so each different one is formatted once."""
    formatted = {at: "NULL" if (when := to_timestamp(at)) is None else f'"{when.isoformat()}"' for at in set(values)}
    return "{" + ",".join([formatted[at] for at in values]) + "}"


def column_array(name: str, values: Sequence[Any]) -> str:
    """Return an array literal of one column. Its name and its first value decide the type."""
    if name.endswith("_at"):
        return time_array(values)
    kind = next((type(value) for value in values if value is not None), int)
    return bytes_array(values) if kind is bytes else text_array(values) if issubclass(kind, str) else plain_array(values)
