"""Connections to the server. Each wait for an answer has a deadline.

A server can stop answering without closing the connection: a dead NAT entry, a frozen proxy, a frozen machine. TCP
keepalives find a dead peer but not a frozen one, so every statement has a deadline of its own here.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 10.0
"""How long one statement of a transaction that writes may take."""
READ_SECONDS = 60.0
"""How long one statement of a transaction that only reads may take: a large page from a cold disk takes its time."""
LARGE_BYTES = 1_000_000
BYTES_A_SECOND = 500_000
LARGE_SECONDS_MAX = 600.0
"""A statement with more than LARGE_BYTES of parameters has a second more for each BYTES_A_SECOND, up to LARGE_SECONDS_MAX."""
CANCEL_SECONDS = 0.5
"""How long the server is asked to drop a statement whose answer is overdue."""
SIGNAL_SECONDS = 0.1
"""How often a wait looks for signals; the driver's own number."""
_SOCKET_OPTIONS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast",
}
"""Options for libpq that the url may override."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed when the answer to a statement is overdue."""

    patience: float = WRITE_SECONDS
    """How long one statement may take, in seconds."""
    is_overdue = False
    """It was closed because an answer was overdue."""

    def wait(self, gen: Any, interval: float = SIGNAL_SECONDS, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - the driver names no public one
            if timeout is not None:
                raise
            self.is_overdue = True
            # A server that is well and waits for a lock would go on waiting for it, a session more with each try.
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer within {self.patience:g} seconds") from None


def allow_for(connection: Connection, params: Mapping[str, Any]) -> None:
    """Give a large statement, and the commit after it, the time that its bytes take."""
    size = 0
    for value in params.values():
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
    if size > LARGE_BYTES:
        connection.patience = max(connection.patience, min(WRITE_SECONDS + size / BYTES_A_SECOND, LARGE_SECONDS_MAX))


PREPARE_AFTER = 2
"""A statement is prepared when it is used more often than this on one connection."""


def connect(conninfo: str, patience: float, *, prepares: bool) -> Connection:
    """A new connection in autocommit mode: the store begins and ends transactions itself."""
    given = conninfo_to_dict(conninfo)
    options: dict[str, Any] = {name: value for name, value in _SOCKET_OPTIONS.items() if name not in given}
    options["connect_timeout"] = max(2, round(min(CONNECT_SECONDS, patience)))
    connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=PREPARE_AFTER if prepares else None, **options)
    connection.patience = patience
    return connection


def is_pooled(connection: Connection) -> bool:
    """Whether a connection pooler is in between: it makes up the process id that a connection is told when it begins."""
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid


def check_server(found: Any, identity: Any, connection: "psycopg.Connection[Any]") -> None:
    """Close a connection behind which another server answers: a pooler does not, when another one takes over."""
    if found != identity:
        connection.close()
        raise psycopg.OperationalError("another server answers at the same address")
