"""Values on their way to and from PostgreSQL: times as microseconds, arrays written by hand where that is quicker."""

import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryLoader

from holdfast.core.model import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POSTGRES_EPOCH_US = 946_684_800_000_000
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


def cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """A cursor of ours, whatever the connection's owner has set up for its own."""
    made = psycopg.Cursor(connection, row_factory=tuple_row)
    made.format = Format.BINARY
    made.adapters.register_loader("timestamptz", MicrosLoader)
    made.adapters.register_loader("interval", SecondsLoader)
    return made


def plain_cursor(connection: "psycopg.Connection[Any]") -> "psycopg.Cursor[tuple[Any, ...]]":
    """A cursor whose times are as the server counts them, microseconds since 2000: no code of ours runs for each of them."""
    made = cursor(connection)
    made.adapters.register_loader("timestamptz", Int8BinaryLoader)
    return made


def to_param(name: str, value: Any) -> Any:
    """Names say what is a time: `…_at`."""
    if value is not None and (name.endswith("_at") or name == "at"):
        return moment(value)
    return value


def moment(at: Micros | None) -> datetime | None:
    return None if at is None else _EPOCH + timedelta(microseconds=at)


def plain_array(values: Iterable[Any]) -> str:
    """An array literal of numbers, hexadecimal texts and NULLs: nothing that would need quoting."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def text_array(values: Iterable[str | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def bytes_array(values: Iterable[bytes | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else '"\\\\x' + value.hex() + '"' for value in values]) + "}"
