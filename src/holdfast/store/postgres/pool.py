"""The connections of a store: idle ones are used again, and a connection to another server is noticed."""

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.core.urls import parse_server_url
from holdfast.errors import HoldfastError, NoLedger, Unavailable, ValidationError
from holdfast.store.postgres.connections import WRITE_SECONDS, TimedConnection, connect
from holdfast.store.postgres.errors import first_line
from holdfast.store.postgres.values import binary_cursor

IDLE_MAX = 8
_NO_DATABASE = re.compile(r'database ".*" does not exist')
"""The message of a server with English messages. libpq gives no error code for a refused connection."""
_FEWER = "End programs that hold some, put lanes=1 into the urls of workers, or "
_NO_CONNECTION = {
    r"too many clients already|remaining connection slots are reserved": (
        f"All connections of the server are in use. {_FEWER}use a connection pooler, or raise max_connections."
    ),
    r"too many connections for (role|database)": (
        "All connections that this role or database may have are in use. "
        f"{_FEWER}raise its limit: ALTER ROLE or ALTER DATABASE … CONNECTION LIMIT."
    ),
    r"no more connections allowed": f"All connections of PgBouncer are in use. {_FEWER}raise its max_client_conn.",
}
"""The messages of a server, a role and PgBouncer without a free connection, and what to do then."""


class ConnectionPool:
    """Connections to the server of one ledger, for any number of threads."""

    def __init__(self, url: str, conninfo: str, identity_sql: str, forget: Callable[[], None]) -> None:
        self._conninfo = conninfo
        self._redacted = parse_server_url(url).redacted
        self._identity_sql = identity_sql
        self._forget = forget
        """Drops all cached state of the server. Called when a new connection leads to another one."""
        self._pid = os.getpid()
        self._closed = False
        self.patience = WRITE_SECONDS
        """How many seconds a statement may take, unless the caller sets another timeout."""
        self.is_direct = False
        """Whether connections lead to the server itself. Behind a pooler, the next transaction may be in another session."""
        self.is_open = False
        """Whether the ledger was found. Until then, a missing database is not an outage."""
        self.idle: list[TimedConnection] = []
        self.timeouts = 0
        """How often a statement has timed out."""
        self.is_verified = True
        """Whether no connection was lost or refused since the server's identity was last checked."""
        self.identity: Any = None

    def connect(self, timeout: float | None = None, conninfo: str | None = None) -> TimedConnection:
        """Open a connection. `timeout` is for one statement; the default is the pool's `patience`.

        The error is raised outside of `except`, so that no traceback shows the driver's own error, which may quote the url.
        """
        try:
            return connect(conninfo or self._conninfo, timeout or self.patience, direct=self.is_direct)
        except psycopg.ProgrammingError:
            refusal: HoldfastError = ValidationError(
                "the url cannot be used: libpq does not accept one of its parts", field="url"
            )
        except psycopg.Error as error:
            self.is_verified = False
            refusal = self._connect_error(self._redacted(first_line(error)))
        raise refusal

    def _connect_error(self, reason: str) -> HoldfastError:
        """Return NoLedger if the database is missing when a ledger is opened, else Unavailable: an open one may come back."""
        missing = None if self.is_open else _NO_DATABASE.search(reason)
        if missing is not None:
            refusal: HoldfastError = NoLedger(f"the {missing[0]} on this server")
            refusal.action = (
                "Check the name of the database in the url, or create the database with createdb. Holdfast creates its tables."
            )
            return refusal
        refusal = Unavailable(f"cannot reach the database: {reason}")
        refusal.action = "Check the url: host, port, database, user and password. If they are right, retry later."
        for message, action in _NO_CONNECTION.items():
            if re.search(message, reason):
                refusal.action = action
        return refusal

    def check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this ledger is closed", retryable=False)
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)

    def take(self, timeout: float | None = None) -> tuple[TimedConnection, bool]:
        """Return a connection, and whether it was used before. A used one may have been closed by the server meanwhile."""
        self.check_usable()
        while self.idle:
            with contextlib.suppress(IndexError):
                connection = self.idle.pop()
                self.is_verified = self.is_verified and not connection.broken
                if not connection.closed:
                    connection.statement_timeout = timeout or self.patience
                    return connection, True
        return self.open(timeout), False

    def open(self, timeout: float | None = None) -> TimedConnection:
        """Open a connection. If it leads to another server after a loss, drop all cached state of the old one."""
        connection = self.connect(timeout)
        if not self.is_verified:
            try:
                found = self.identity_of(connection)
            except psycopg.Error as error:
                connection.close()
                raise Unavailable(f"the database cannot do this now: {first_line(error)}") from None
            if found != self.identity:
                self.identity = found
                self._forget()
            self.is_verified = True
        return connection

    def identity_of(self, connection: TimedConnection) -> Any:
        """Return the identity of the connection's server."""
        return binary_cursor(connection).execute(self._identity_sql).fetchone()

    def give_back(self, connection: TimedConnection) -> None:
        if self._closed or connection.closed or len(self.idle) >= IDLE_MAX:
            connection.close()
        else:
            self.idle.append(connection)

    def abandon(self, connection: TimedConnection) -> None:
        """Roll back what a failed call has left, and keep the connection if that works."""
        if connection.closed:
            self.is_verified = False
        self.drop_idle_if_overdue(connection)
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        else:
            self.give_back(connection)

    def drop_idle_if_overdue(self, connection: TimedConnection) -> None:
        """Close idle connections if this one has timed out. What broke one connection has probably broken all of them."""
        if not connection.is_overdue:
            return
        self.timeouts += 1
        self._close_idle()

    def close(self) -> None:
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while self.idle:
            with contextlib.suppress(IndexError):
                self.idle.pop().close()
