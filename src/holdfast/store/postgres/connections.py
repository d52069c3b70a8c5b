"""Urls and connections. Each statement has a timeout.

A server can stop answering without closing the connection: a dead NAT entry, a frozen proxy, a frozen machine. TCP
keepalives detect a dead peer but not a frozen one, so every statement has its own timeout here.
"""

import contextlib
import re
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.rows import tuple_row

from holdfast.core.urls import ServerUrl, parse_server_url
from holdfast.errors import ServerTooOld, ValidationError
from holdfast.store.base import Lane
from holdfast.store.callers import run_on_loop
from holdfast.store.postgres.values import read_binary

OPTIONS = ("schema", "lanes", "pooled", "listen")
"""Holdfast's own parameters in a url. The others are for libpq."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class PostgresAddress(NamedTuple):
    conninfo: str
    schema: str
    lanes: Sequence[Lane]
    pooled: bool | None
    """Whether there may be a connection pooler in transaction mode. None: the url does not specify it."""
    listen: str | None
    """The conninfo of listening connections, if they use another host or port."""


def read_url(url: str) -> PostgresAddress:
    """Split a url into a part for libpq and Holdfast's own parameters.

    `schema` names the schema. `lanes=1` saves one connection. `pooled=1` or `pooled=0` turns off the detection of a connection
    pooler. `listen=HOST:PORT` is the address of the server itself if the url leads to a pooler: it cannot forward notifications.
    The part for libpq is not changed: libpq has its own rules for empty parts and for escapes.
    """
    parsed = parse_server_url(url)
    named = [(unquote(name), name, value) for name, value in parsed.parameters]
    ours = {
        "schema": "holdfast",
        "lanes": "2",
        "pooled": "",
        "listen": "",
        **{plain: unquote(value) for plain, _, value in named},
    }
    if not _SCHEMA.fullmatch(ours["schema"]):
        raise ValidationError("schema must be a plain lower-case name of at most 51 characters", field="url")
    if ours["lanes"] not in ("1", "2"):
        raise ValidationError("lanes must be 1 or 2", field="url")
    if ours["pooled"] not in ("", "0", "1"):
        raise ValidationError("pooled must be 0 or 1", field="url")
    left = [(plain, name, value) for plain, name, value in named if plain not in OPTIONS]
    if not {plain for plain, _, _ in left} <= _libpq_names():
        raise ValidationError(
            f"the url has a parameter that neither Holdfast ({', '.join(OPTIONS)}) nor libpq knows: in a password write & as %26",
            field="url",
        )
    lanes: Sequence[Lane] = ("work", "keyed") if ours["lanes"] == "1" else ("claim", "work", "keyed")
    kept = [(name, value) for _, name, value in left]
    pooled = None if not ours["pooled"] else ours["pooled"] == "1"
    return PostgresAddress(parsed.text(kept), ours["schema"], lanes, pooled, _listen_url(parsed, ours["listen"], kept))


def _listen_url(url: ServerUrl, hosts: str, parameters: Sequence[tuple[str, str]]) -> str | None:
    if not hosts:
        return None
    text = url._replace(hosts=hosts).text(parameters)
    if parse_server_url(text).hosts != hosts:
        raise ValidationError("listen must be HOST or HOST:PORT", field="url")
    return text


def _libpq_names() -> set[str]:
    """Return the names of libpq's parameters. `ssl` is an older one that libpq accepts only in urls."""
    return {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}


CONNECT_SECONDS = 10.0
WRITE_SECONDS = 10.0
"""How long one statement of a transaction that writes may take."""
READ_SECONDS = 60.0
"""How long one statement of a read-only transaction may take. A large page from a cold disk is slow."""
LARGE_BYTES = 1_000_000
BYTES_A_SECOND = 500_000
LARGE_SECONDS_MAX = 600.0
"""A statement with more than LARGE_BYTES of parameters gets a second more for each BYTES_A_SECOND, up to LARGE_SECONDS_MAX."""
CANCEL_SECONDS = 0.5
"""How long the request to cancel a timed-out statement may take."""
SIGNAL_SECONDS = 0.1
"""How often a wait checks for signals. It is the driver's default."""
_SOCKET_OPTIONS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast",
}
"""Options for libpq that the url may override."""


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when a statement times out."""

    statement_timeout: float = WRITE_SECONDS
    """How long one statement may take, in seconds."""
    is_overdue = False
    """It was closed because a statement timed out."""

    def wait(self, gen: Any, interval: float = SIGNAL_SECONDS, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, self.statement_timeout if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - the driver has no public name for it
            if timeout is not None:
                raise
            self.is_overdue = True
            # Otherwise a healthy server would keep waiting for a lock, with one more session at each retry.
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer within {self.statement_timeout:g} seconds") from None


def extend_timeout(connection: TimedConnection, params: Mapping[str, Any]) -> None:
    """Extend the timeout of a large statement, and of the commit after it, according to its size."""
    size = 0
    for value in params.values():
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
    if size > LARGE_BYTES:
        longer = min(WRITE_SECONDS + size / BYTES_A_SECOND, LARGE_SECONDS_MAX)
        connection.statement_timeout = max(connection.statement_timeout, longer)


LOCK_MS = 100
"""How long a statement waits for a row or a name that another transaction has locked. Its transaction is then rolled back."""
PREPARE_AFTER = 2
"""A statement is prepared when it is used more often than this on one connection."""


def connect(conninfo: str, timeout: float, *, direct: bool) -> TimedConnection:
    """Open a connection in autocommit mode. The store begins and ends transactions itself."""
    explicit = conninfo_to_dict(conninfo)
    options: dict[str, Any] = {name: value for name, value in _SOCKET_OPTIONS.items() if name not in explicit}
    options["connect_timeout"] = max(2, round(min(CONNECT_SECONDS, timeout)))
    connection = TimedConnection.connect(conninfo, autocommit=True, prepare_threshold=None, **options)
    connection.statement_timeout = timeout
    if direct:
        configure_direct(connection)
    return connection


def configure_direct(connection: TimedConnection) -> None:
    """Configure a connection to the server itself. A pooler would lose these settings.

    Statements are prepared. The server keeps the plan of a prepared statement until it analyzes the tables. A plan from the time
    when a ledger was nearly empty would read whole tables, and take seconds after 100,000 jobs were enqueued. So the server must
    use indexes. A server before 18 takes a plan that reads a table nevertheless for very expensive, and would compile it (JIT),
    which takes a second. A statement that is a transaction of its own waits for locks no longer than any other.
    """
    connection.prepare_threshold = PREPARE_AFTER
    connection.execute(f"SET enable_seqscan = off; SET jit = off; SET lock_timeout = {LOCK_MS}", prepare=False)


SERVER_OLDEST = 13
"""The oldest major version of PostgreSQL that has all functions which the statements use."""


def check_version(connection: TimedConnection) -> None:
    """Raise ServerTooOld if the statements cannot run on this server."""
    if connection.info.server_version < SERVER_OLDEST * 10_000:
        found = connection.info.parameter_status("server_version")
        raise ServerTooOld(
            f"the server is PostgreSQL {found}: a ledger needs {SERVER_OLDEST} or newer", found=found, oldest=SERVER_OLDEST
        )


def has_input(connection: TimedConnection) -> bool:
    """Return whether an idle connection has something to read. Mostly that is its end."""
    return bool(select.select([connection.pgconn.socket], [], [], 0)[0])


def is_pooled(connection: TimedConnection) -> bool:
    """Return whether there is a connection pooler. A pooler invents the process id that it sends when a connection starts."""
    [(pid,)] = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchall()
    return bool(pid != connection.info.backend_pid)


def check_server(found: Any, identity: Any, connection: "psycopg.Connection[Any]") -> None:
    """Close a connection that leads to another server and raise. A pooler keeps its connections open after a failover."""
    if found != identity:
        connection.close()
        raise psycopg.OperationalError("another server answers at the same address")


class LoopCursor:
    """The part of psycopg.Cursor that the store uses, for an AsyncCursor."""

    def __init__(self, cursor: "psycopg.AsyncCursor[tuple[Any, ...]]") -> None:
        self._cursor = cursor
        self._rows: list[tuple[Any, ...]] = []

    @property
    def description(self) -> Any:
        return self._cursor.description

    def execute(self, query: str, params: Any = None) -> "LoopCursor":
        self._rows = run_on_loop(lambda: self._execute(query, params))
        return self

    async def _execute(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        await self._cursor.execute(query.encode(), params)
        return await self._cursor.fetchall() if self._cursor.description else []

    def executemany(self, query: str, params: Sequence[Any]) -> None:
        run_on_loop(lambda: self._cursor.executemany(query.encode(), params))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class LoopConnection:
    """The part of psycopg.Connection that the store uses, for an AsyncConnection."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self.wrapped = connection

    @property
    def closed(self) -> bool:
        return self.wrapped.closed

    @property
    def autocommit(self) -> bool:
        return self.wrapped.autocommit

    @property
    def prepare_threshold(self) -> int | None:
        return self.wrapped.prepare_threshold

    @prepare_threshold.setter
    def prepare_threshold(self, value: int | None) -> None:
        self.wrapped.prepare_threshold = value

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self.wrapped.info

    def cursor(self) -> LoopCursor:
        cursor = psycopg.AsyncCursor(self.wrapped, row_factory=tuple_row)
        read_binary(cursor)
        return LoopCursor(cursor)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.wrapped.transaction()
        run_on_loop(block.__aenter__)
        try:
            yield
        except BaseException:
            error = sys.exc_info()
            run_on_loop(lambda: block.__aexit__(*error))
            raise
        run_on_loop(lambda: block.__aexit__(None, None, None))
