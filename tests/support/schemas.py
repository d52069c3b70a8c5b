"""A schema on PostgreSQL, and connections to it, that many tests use, one after the other."""

import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import holdfast
from holdfast.store.postgres.connections import TimedConnection
from holdfast.store.postgres.pool import ConnectionPool
from tests.conftest import drop_schema

USES_MAX = 100
ROWS_MAX = 1_000
"""A schema that was used for more tests, or for a larger one, is dropped: it has many dead rows."""


class ReusedSchema:
    """A schema that is emptied after each test: creating one takes fifty times as long.

    Its tables are not analyzed, like those of a new one, because statistics of one test cause bad plans in the next.
    """

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._connection = psycopg.connect(server_url, autocommit=True)
        # A test that leaves a transaction open should fail, not hang.
        self._connection.execute("SET lock_timeout = '10s'")
        # The tables can be emptied in any order: foreign keys are not checked.
        self._connection.execute("SET session_replication_role = replica")
        self._make()

    def _make(self) -> None:
        self._schema = schema = f"hf_{uuid.uuid4().hex}"
        self._uses = 0
        self.url = f"{self._server_url}?schema={schema}"
        holdfast.open(self.url).close()
        tables = [
            f"{schema}.{name}"
            for (name,) in self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        ]
        for table in tables:
            self._connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        numbers = self._connection.execute("SELECT sequencename, start_value FROM pg_sequences WHERE schemaname = %s", [schema])
        statements = [f"DELETE FROM {table}" for table in tables if not table.endswith(".schema_version")]
        statements += [f"SELECT setval('{schema}.{name}', {start}, false)" for name, start in numbers.fetchall()]
        self._empty = "; ".join([*statements, f"INSERT INTO {schema}.meta VALUES ('ledger_id', '%s')"])

    def empty(self) -> None:
        """Make it an empty ledger with another id. If that fails, the next test gets a new schema."""
        self._uses += 1
        try:
            sizes = f"SELECT e.last_value / 2048 + j.last_value FROM {self._schema}.event_pos e, {self._schema}.job_id j"
            [(rows,)] = self._connection.execute(sizes.encode()).fetchall()
            if self._uses < USES_MAX and rows < ROWS_MAX:
                self._connection.execute((self._empty % secrets.token_hex(4)).encode())
                return
            drop_schema(self._server_url, self._schema)
        except psycopg.Error:
            self._make()
            raise
        self._make()

    def close(self) -> None:
        self._connection.close()


class ReusedConnections:
    """Connections that ledgers leave to those of later tests.

    In a new session the server reads its catalog again and plans every statement again. That takes longer than most tests.
    """

    def __init__(self) -> None:
        self._kept: dict[str, list[TimedConnection]] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within the block, ledgers take these connections first, and leave their idle ones at the end."""
        connect, close = ConnectionPool.connect, ConnectionPool.close

        def take(pool: ConnectionPool, timeout: float | None = None, conninfo: str | None = None) -> TimedConnection:
            kept = self._kept.get(conninfo or pool._conninfo)
            if not kept:
                return connect(pool, timeout, conninfo)
            connection = kept.pop()
            connection.statement_timeout = timeout or pool.patience
            return connection

        def leave(pool: ConnectionPool) -> None:
            idle = [one for one in pool.idle if not one.closed and one.info.transaction_status is TransactionStatus.IDLE]
            pool.idle = [one for one in pool.idle if one not in idle]
            self._kept.setdefault(pool._conninfo, []).extend(idle)
            close(pool)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConnectionPool, "connect", take)
            patch.setattr(ConnectionPool, "close", leave)
            yield

    def close(self) -> None:
        for kept in self._kept.values():
            for connection in kept:
                connection.close()
