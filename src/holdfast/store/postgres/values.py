"""Values on their way to and from PostgreSQL: times as microseconds, arrays written by hand where that is quicker."""

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
"""From 1970 to 2000, where PostgreSQL counts from."""
_unpack = struct.Struct("!q").unpack


class MicrosLoader(Loader):
    """timestamptz in its binary form: microseconds since 2000."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Micros:
        return int(_unpack(data)[0]) + POSTGRES_EPOCH_US


class SecondsLoader(Loader):
    """interval in its binary form, as seconds: only ever one the server measured between two of its own clock readings."""

    format = Format.BINARY

    def load(self, data: Buffer) -> float:
        return int(_unpack(data[:8])[0]) / 1_000_000


def binary_cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """A cursor of ours, whatever the connection's owner has set up for its own."""
    made = psycopg.Cursor(connection, row_factory=tuple_row)
    read_binary(made)
    return made


def read_binary(made: "psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]") -> None:
    """Have a cursor receive values in binary form, times as microseconds."""
    made.format = Format.BINARY
    made.adapters.register_loader("timestamptz", MicrosLoader)
    made.adapters.register_loader("interval", SecondsLoader)


def raw_cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """One whose times are microseconds since 2000: the driver reads those without calling back, which pays for a large batch."""
    made = binary_cursor(connection)
    plain = made.adapters.get_loader(made.adapters.types["int8"].oid, Format.BINARY)
    assert plain is not None
    made.adapters.register_loader("timestamptz", plain)
    return made


def to_param(name: str, value: Any) -> Any:
    """Names say what is a time: `…_at`."""
    if value is not None and (name.endswith("_at") or name == "at"):
        return to_timestamp(value)
    return value


def to_timestamp(at: Micros | None) -> datetime | None:
    return None if at is None else _EPOCH + timedelta(microseconds=at)


def plain_array(values: Iterable[Any]) -> str:
    """An array literal of numbers, hexadecimal texts and NULLs: nothing that would need quoting."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def text_array(values: Sequence[str | None]) -> str:
    """The texts of one batch are often the same: each is quoted once."""
    quoted = {value: "NULL" if value is None else _quoted(value) for value in set(values)}
    return "{" + ",".join([quoted[value] for value in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def bytes_array(values: Iterable[bytes | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else '"\\\\x' + value.hex() + '"' for value in values]) + "}"


def time_array(values: Sequence[Micros | None]) -> str:
    """Those of one batch are mostly the same: each is written once."""
    written = {at: "NULL" if (when := to_timestamp(at)) is None else f'"{when.isoformat()}"' for at in set(values)}
    return "{" + ",".join([written[at] for at in values]) + "}"


def column_array(name: str, values: Sequence[Any]) -> str:
    """An array literal of one column, by its name and by what is in it."""
    if name.endswith("_at"):
        return time_array(values)
    kind = next((type(value) for value in values if value is not None), int)
    return bytes_array(values) if kind is bytes else text_array(values) if issubclass(kind, str) else plain_array(values)
