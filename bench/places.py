"""The ledger of a measurement, with SQL that fills and reads it without Holdfast."""

import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg

import holdfast
from bench.cpu import Meter
from bench.raw_postgres import RawPostgres
from bench.raw_sqlite import RawSqlite
from bench.texts import texts
from bench.volume import PostgresVolume, SqliteVolume, Volume
from bench.work import KIND
from holdfast import Ledger
from tools.pgserver import PostgresServer

FILL_AT_ONCE = 50_000
LATE_POSITIONS = 32 * 2_048
"""On PostgreSQL a batch may be committed after another one that has drawn a later position."""


class Raw(Protocol):
    """The frozen statements with nothing around them."""

    def prepare_enqueue(self, queue: str, count: int) -> Any: ...
    def enqueue(self, prepared: Any) -> None: ...
    def drain(self, queue: str, count: int) -> int: ...
    def hold(self, queue: str, count: int) -> list[list[int]]: ...
    def beat(self, chunks: Sequence[list[int]]) -> int: ...
    def close(self) -> None: ...


class Place(Protocol):
    """One empty ledger."""

    url: str

    def raw(self) -> Raw: ...
    def fill(self, queue: str, count: int, *, finished: bool = False) -> None:
        """Add jobs that are ready, or that have succeeded, with all their events."""

    def settle(self) -> None:
        """Update statistics and write everything to disk."""

    def vacuum(self) -> None:
        """Make the space of deleted rows free for use, as PostgreSQL does by itself from time to time."""

    def object_sizes(self) -> dict[str, int]:
        """The bytes of each table and index on disk."""

    def rows(self) -> dict[str, int]:
        """How many rows each table has."""

    def events(self, kind: str) -> int:
        """How many events of a type there are."""

    def succeeded(self, after: int, newest: int) -> dict[int, int]:
        """The batches of successes after a position, each with its number of jobs. Those up to `newest` are known already."""

    def meter(self, clients: Sequence[int] | None = None) -> Meter:
        """Count the processor time of these processes, or of this one, and of the server."""

    def volume(self) -> Volume:
        """Count the bytes that this process writes, and the size of the ledger."""


class Host(Protocol):
    """A kind of store."""

    name: str
    versions: str

    def place(self) -> AbstractContextManager[Place]:
        """A new ledger, removed at the end."""


class SqlitePlace:
    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(10_000)

    def raw(self) -> Raw:
        return RawSqlite(self._path)

    def fill(self, queue: str, count: int, *, finished: bool = False) -> None:
        connection, sql = self._connection, texts("fill/sqlite.sql")
        state = "finished" if finished else "queued"
        for start in range(0, count, FILL_AT_ONCE):
            first = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM holdfast_jobs").get
            last = first + min(FILL_AT_ONCE, count - start) - 1
            params = {"first": first, "last": last, "queue": queue, "kind": KIND, "now": time.time_ns() // 1_000}
            connection.execute("BEGIN IMMEDIATE")
            params["pos"] = connection.execute("SELECT last + 1 FROM holdfast_positions").get
            for name in (f"{state}_jobs", f"{state}_batches", "last_pos", "times"):
                text = sql[name]
                connection.execute(text, {name: value for name, value in params.items() if f":{name}" in text})
            connection.execute("COMMIT")

    def settle(self) -> None:
        self._connection.execute("ANALYZE")
        self._connection.pragma("wal_checkpoint", "TRUNCATE")

    def vacuum(self) -> None:
        """Do nothing: SQLite uses free pages again at once."""

    def object_sizes(self) -> dict[str, int]:
        text = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name"
        found = {str(name): int(size or 0) for name, size in self._connection.execute(text)}
        free = self._connection.pragma("freelist_count") * self._connection.pragma("page_size")
        return {name.removeprefix("holdfast_"): size for name, size in found.items()} | {"free pages": free}

    def rows(self) -> dict[str, int]:
        names = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'holdfast%'")
        return {str(name): self._connection.execute(f"SELECT count(*) FROM {name}").get for (name,) in names.fetchall()}

    def events(self, kind: str) -> int:
        return int(self._connection.execute("SELECT count(*) FROM holdfast_events WHERE type = ?", (kind,)).get)

    def succeeded(self, after: int, newest: int) -> dict[int, int]:
        text = "SELECT pos, size FROM holdfast_event_batches WHERE pos > ? AND type = 'succeeded'"
        rows: list[tuple[Any, ...]] = self._connection.execute(text, (max(after, newest),)).fetchall()
        return {int(pos): int(size) for pos, size in rows}

    def meter(self, clients: Sequence[int] | None = None) -> Meter:
        return Meter(clients)

    def volume(self) -> Volume:
        return SqliteVolume(self._path, [])

    def close(self) -> None:
        self._connection.close()


class PostgresPlace:
    def __init__(self, server_url: str, schema: str) -> None:
        self.url = f"{server_url}?schema={schema}"
        self.server_url = server_url
        self._schema = schema
        self._connection = psycopg.connect(server_url, autocommit=True)

    def raw(self) -> Raw:
        return RawPostgres(self.server_url, self._schema)

    def fill(self, queue: str, count: int, *, finished: bool = False) -> None:
        schema, state = self._schema, "finished" if finished else "queued"
        sql = {name: text.replace("holdfast.", f"{schema}.") for name, text in texts("fill/postgres.sql").items()}
        for start in range(0, count, FILL_AT_ONCE):
            first = self._one(f"SELECT nextval('{schema}.job_id')")
            last = first + min(FILL_AT_ONCE, count - start) - 1
            pos = self._one(f"SELECT nextval('{schema}.event_pos')")
            params = {"first": first, "last": last, "pos": pos, "queue": queue, "kind": KIND}
            with self._connection.transaction():
                for name in (f"{state}_jobs", f"{state}_batches"):
                    self._connection.execute(sql[name], params)
                self._connection.execute(f"SELECT setval('{schema}.job_id', %s)", (last,))
                self._connection.execute(f"SELECT setval('{schema}.event_pos', %s)", (self._one(sql["last_pos"]),))

    def settle(self) -> None:
        for table in ("jobs", "event_rows", "event_batches", "open_claims"):
            self._connection.execute(f"VACUUM (ANALYZE) {self._schema}.{table}")
        self._connection.execute("CHECKPOINT")

    def vacuum(self) -> None:
        for (name,) in self._tables():
            self._connection.execute(f"VACUUM {self._schema}.{name}")

    def object_sizes(self) -> dict[str, int]:
        text = (
            "SELECT relname, CASE relkind WHEN 'r' THEN pg_table_size(oid) ELSE pg_relation_size(oid) END FROM pg_class "
            "WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i') ORDER BY relname"
        )
        return dict(self._connection.execute(text, (self._schema,)).fetchall())

    def rows(self) -> dict[str, int]:
        return {name: self._one(f"SELECT count(*) FROM {self._schema}.{name}") for (name,) in self._tables()}

    def _tables(self) -> list[tuple[str]]:
        text = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY relname"
        return self._connection.execute(text, (self._schema,)).fetchall()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep a foreign transaction with a snapshot and its own id open: nothing newer can be vacuumed."""
        with psycopg.connect(self.server_url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT pg_current_xact_id()")
            connection.execute(f"SELECT count(*) FROM {self._schema}.queues")
            yield
            connection.rollback()

    def events(self, kind: str) -> int:
        return self._one(f"SELECT count(*) FROM {self._schema}.events WHERE type = %s", (kind,))

    def succeeded(self, after: int, newest: int) -> dict[int, int]:
        text = f"SELECT pos, size FROM {self._schema}.event_batches WHERE pos > %s AND type = 'succeeded'"
        return dict(self._connection.execute(text, (max(after, newest - LATE_POSITIONS),)).fetchall())

    def meter(self, clients: Sequence[int] | None = None) -> Meter:
        return Meter(clients, self._connection)

    def volume(self) -> Volume:
        return PostgresVolume(self._connection)

    def _one(self, text: str, params: Sequence[Any] = ()) -> int:
        found = self._connection.execute(text, params).fetchone()
        assert found is not None
        return int(found[0])

    def close(self) -> None:
        self._connection.execute(f"DROP SCHEMA {self._schema} CASCADE")
        self._connection.close()


class SqliteHost:
    name = "SQLite"

    def __init__(self, home: Path) -> None:
        self._home = home
        self.versions = f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}"

    @contextmanager
    def place(self) -> Iterator[SqlitePlace]:
        home = self._home / uuid.uuid4().hex
        home.mkdir(parents=True)
        _found(f"sqlite:///{home}/ledger.db")
        place = SqlitePlace(home / "ledger.db")
        try:
            yield place
        finally:
            place.close()
            shutil.rmtree(home)


class PostgresHost:
    name = "PostgreSQL"

    def __init__(self, server: PostgresServer) -> None:
        self._url = server.url
        with psycopg.connect(server.url) as connection:
            version = connection.info.parameter_status("server_version")
        self.versions = f"PostgreSQL {version}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__})"

    @contextmanager
    def place(self) -> Iterator[PostgresPlace]:
        schema = f"bench_{uuid.uuid4().hex}"
        _found(f"{self._url}?schema={schema}")
        place = PostgresPlace(self._url, schema)
        try:
            yield place
        finally:
            place.close()


def _found(url: str) -> None:
    """Make the tables, and the policy that the jobs will have."""
    with holdfast.open(url) as ledger:
        ledger.enqueue(KIND, queue="first")


@contextmanager
def opened(place: Place) -> Iterator[tuple[Ledger, Raw]]:
    """Both contenders on one ledger."""
    raw = place.raw()
    try:
        with holdfast.open(place.url) as ledger:
            yield ledger, raw
    finally:
        raw.close()
