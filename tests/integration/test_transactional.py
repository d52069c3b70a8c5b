"""Enqueueing in the caller's own transaction: the job is committed or rolled back with the caller's rows."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import psycopg
import pytest
from psycopg import rows

from holdfast import HoldfastError, Ledger
from holdfast.errors import Unavailable, ValidationError
from tests.integration.conftest import Opener
from tests.support.histories import all_events, count_jobs, following_of, problems

Begin = Callable[[], Any]


@pytest.fixture
def pg_url(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def begin(store_url: str, postgres_url: str) -> Iterator[Begin]:
    """A new connection of the caller in an open transaction, with a table of the caller."""
    made: list[Any] = []

    def begin_sqlite() -> Any:
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        made.append(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def begin_postgres() -> Any:
        connection = psycopg.connect(postgres_url)
        made.append(connection)
        connection.execute("CREATE TEMPORARY TABLE IF NOT EXISTS orders (id integer)")
        connection.commit()
        return connection

    yield begin_sqlite if store_url.startswith("sqlite") else begin_postgres
    for connection in made:
        connection.close()


def test_a_job_is_committed_with_the_callers_rows(real: Ledger, begin: Begin) -> None:
    connection = begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    job = real.enqueue("ship", {"order": 1}, queue="orders", connection=connection)
    more = real.enqueue_many([{"kind": "ship"}] * 3, connection=connection)
    assert count_jobs(real) == 0
    if not isinstance(connection, apsw.Connection):
        # SQLite has one writer at a time: a claim would wait for the caller.
        assert real.claim("worker", ["orders", "default"], limit=10) == []
    connection.execute("COMMIT")

    assert [found.id for found in real.list()] == [job.id, *(each.id for each in more)]
    found = real.get(job.id)
    assert (found.args, found.status, found.record) == ({"order": 1}, "queued", job.record)
    assert [claimed.id for claimed in real.claim("worker", ["orders"])] == [job.id]
    assert problems(real) == []


def test_a_job_is_rolled_back_with_the_callers_rows(real: Ledger, begin: Begin) -> None:
    connection = begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    real.enqueue("ship", connection=connection, request_id="r", dedupe_key="k", tier="in_home", policy={"attempts_max": 2})
    connection.execute("ROLLBACK")

    assert count_jobs(real) == 0
    assert real.events() == []
    # Caches have not kept the key, the request or the policy of the kind.
    job = real.enqueue("ship", request_id="r", dedupe_key="k", tier="in_home", policy={"attempts_max": 2})
    assert job.is_new
    [claimed] = real.claim("worker", start=True)
    assert claimed.policy is not None
    assert claimed.policy.attempts_max == 2
    assert problems(real) == []


def test_every_option_works_in_the_callers_transaction(real: Ledger, begin: Begin) -> None:
    connection = begin()
    options: dict[str, Any] = {
        "priority": 5, "dedupe_key": "k", "tier": "in_home", "correlation_id": "c", "trace_id": "t", "delay": 5,
        "policy": {"attempts_max": 7}, "request_id": "r",
    }  # fmt: skip
    first = real.enqueue("ship", {"n": 1}, connection=connection, **options)
    assert first.is_new
    again = real.enqueue("ship", {"n": 2}, dedupe_key="k", connection=connection)
    assert (again.id, again.is_new) == (first.id, False)
    connection.execute("COMMIT")
    found = real.get(first.id)
    assert (found.priority, found.correlation_id, found.trace_id, found.tier) == (5, "c", "t", "in_home")
    repeated = real.enqueue("ship", {"n": 1}, **options)
    assert repeated.id == first.id
    assert count_jobs(real) == 1


def test_a_refused_enqueue_leaves_the_callers_transaction_usable(real: Ledger, begin: Begin) -> None:
    connection = begin()
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(HoldfastError):
        real.enqueue("", connection=connection)
    with pytest.raises(HoldfastError):
        real.enqueue_many([{"kind": "good"}, {"kind": "bad", "priority": 10**9}], connection=connection)
    connection.execute("INSERT INTO orders VALUES (2)")
    connection.execute("COMMIT")
    assert list(connection.execute("SELECT id FROM orders ORDER BY id")) == [(1,), (2,)]
    assert count_jobs(real) == 0


@pytest.mark.parametrize("factory", [rows.dict_row, rows.namedtuple_row, rows.scalar_row])
def test_a_job_commits_with_the_callers_rows_on_postgres(postgres_url: str, on_postgres: Ledger, factory: Any) -> None:
    with psycopg.connect(postgres_url, row_factory=factory, cursor_factory=psycopg.ClientCursor) as connection:
        made = on_postgres.enqueue("ship", {"n": 1}, dedupe_key="k", connection=connection)
        found = on_postgres.enqueue("ship", {"n": 2}, dedupe_key="k", request_id="r", connection=connection)
        more = on_postgres.enqueue_many([{"kind": "ship"}] * 3, request_id="m", connection=connection)
        again = on_postgres.enqueue_many([{"kind": "ship"}] * 3, request_id="m", connection=connection)
    assert found.id == made.id
    assert [job.id for job in again] == [job.id for job in more]
    assert count_jobs(on_postgres) == 4
    assert problems(on_postgres) == []


class Wrapped:
    """A row that is not a tuple."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.row = row


@pytest.mark.parametrize(
    "tracer", [lambda cursor, row: Wrapped(row), lambda cursor, row: dict(enumerate(row)), apsw.ext.DataClassRowFactory()]
)
def test_a_job_commits_with_the_callers_rows_on_sqlite(sqlite_url: str, on_sqlite: Ledger, tracer: Any) -> None:
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    connection.row_trace = tracer
    connection.execute("BEGIN IMMEDIATE")
    made = on_sqlite.enqueue("ship", {"n": 1}, dedupe_key="k", connection=connection)
    found = on_sqlite.enqueue("ship", {"n": 2}, dedupe_key="k", request_id="r", connection=connection)
    more = on_sqlite.enqueue_many([{"kind": "ship"}] * 3, request_id="m", connection=connection)
    again = on_sqlite.enqueue_many([{"kind": "ship"}] * 3, request_id="m", connection=connection)
    connection.execute("COMMIT")
    assert connection.row_trace is tracer
    connection.close()
    assert found.id == made.id
    assert [job.id for job in again] == [job.id for job in more]
    assert count_jobs(on_sqlite) == 4
    assert problems(on_sqlite) == []


def refused(ledger: Ledger, connection: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        ledger.enqueue("ship", connection=connection)
    assert caught.value.context["field"] == "connection"
    assert count_jobs(ledger) == 0
    return caught.value.message


def test_another_kind_of_connection_is_refused(real: Ledger, postgres_url: str, tmp_path: Path) -> None:
    for other in (object(), "connection", 1):
        refused(real, other)
    # Never to the ledger's own file: two SQLite libraries on one file break its locks.
    foreign = sqlite3.connect(tmp_path / "other.db")
    foreign.execute("BEGIN")
    assert "sqlite3.Connection" in refused(real, foreign)
    foreign.close()
    if real._store.lanes() == ("work",):
        with psycopg.connect(postgres_url) as connection:
            refused(real, connection)
    else:
        connection_to_file = apsw.Connection(str(tmp_path / "third.db"))
        connection_to_file.execute("BEGIN IMMEDIATE")
        refused(real, connection_to_file)
        connection_to_file.close()


def test_a_connection_without_a_transaction_is_refused(store_url: str, postgres_url: str, real: Ledger) -> None:
    if store_url.startswith("sqlite"):
        connection: Any = apsw.Connection(store_url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(postgres_url, autocommit=True)
    assert "transaction" in refused(real, connection)
    connection.execute("BEGIN")
    real.enqueue("ship", connection=connection)
    connection.execute("COMMIT")
    assert count_jobs(real) == 1
    connection.close()


def test_a_connection_to_another_file_is_refused(on_sqlite: Ledger, tmp_path: Path, opened: Opener) -> None:
    opened(f"sqlite:///{tmp_path}/other.db")
    for path in (str(tmp_path / "other.db"), ":memory:", ""):
        connection = apsw.Connection(path)
        connection.execute("BEGIN IMMEDIATE")
        refused(on_sqlite, connection)
        assert connection.in_transaction
        connection.close()


def test_a_connection_to_another_database_is_refused(on_postgres: Ledger, pg_url: str, postgres_url: str, opened: Opener) -> None:
    name = pg_url.partition("schema=")[2]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            other_url = postgres_url.rpartition("/")[0] + f"/{name}"
            # A database without a ledger, then one with another ledger under the same name.
            with psycopg.connect(other_url) as connection:
                refused(on_postgres, connection)
            holder = opened(f"{other_url}?schema={name}")
            with psycopg.connect(other_url) as connection:
                refused(on_postgres, connection)
            holder.close()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_connection_through_a_symbolic_link_is_accepted(on_sqlite: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_url.removeprefix("sqlite:///"))
    connection = apsw.Connection(str(link))
    connection.execute("BEGIN IMMEDIATE")
    on_sqlite.enqueue("ship", connection=connection)
    connection.execute("COMMIT")
    connection.close()
    assert count_jobs(on_sqlite) == 1


def test_the_callers_connection_settings_are_not_changed(on_postgres: Ledger, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET LOCAL lock_timeout = '7s'")
        on_postgres.enqueue("ship", dedupe_key="k", connection=connection)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("7s",)
        connection.rollback()


def test_a_key_locked_by_another_transaction_is_reported_as_unavailable(on_postgres: Ledger, postgres_url: str) -> None:
    """The ledger cannot run the caller's transaction again, so the caller gets an error."""
    on_postgres.enqueue("warm")
    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url) as caller:
        on_postgres.enqueue("ship", dedupe_key="k", connection=holder)
        caller.execute("CREATE TEMPORARY TABLE mine AS SELECT 1")
        # The caller's own lock_timeout applies.
        caller.execute("SET LOCAL lock_timeout = '300ms'")
        with pytest.raises(Unavailable) as caught:
            on_postgres.enqueue("ship", dedupe_key="k", connection=caller)
        assert caught.value.outcome == "none"
        # Only the enqueue is undone, not the caller's earlier statements.
        assert caller.execute("SELECT count(*) FROM mine").fetchone() == (1,)
        holder.commit()
        found = on_postgres.enqueue("ship", dedupe_key="k", connection=caller)
        assert not found.is_new
        caller.rollback()
    assert count_jobs(on_postgres) == 2


def test_a_snapshot_that_cannot_see_the_job_of_its_key_is_reported(on_postgres: Ledger, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as caller:
        caller.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        caller.execute("SELECT 1")
        caller.execute("SELECT count(*) FROM pg_class")
        on_postgres.enqueue("ship", dedupe_key="k")
        with pytest.raises(Unavailable):
            on_postgres.enqueue("ship", dedupe_key="k", connection=caller)
        caller.rollback()


def test_followers_are_woken_by_the_callers_commit(real: Ledger, begin: Begin) -> None:
    real.enqueue("warm")
    following = following_of(real, real.events()[-1].pos)
    connection = begin()
    job = real.enqueue("ship", connection=connection)
    heard: list[int] = []
    listener = threading.Thread(target=lambda: heard.append(next(following).job_id))
    listener.start()
    connection.execute("COMMIT")
    listener.join(10)
    assert heard == [job.id]
    following.close()


def test_many_callers_enqueue_in_their_own_transactions_at_once(real: Ledger, store_url: str, begin: Begin) -> None:
    """Each in its own transaction, a third of them rolled back."""
    connections = [begin() for _ in range(1 if store_url.startswith("sqlite") else 12)]
    made = set()
    for number, connection in enumerate(connections):
        jobs = real.enqueue_many([{"kind": f"kind-{number % 4}", "policy": {"attempts_max": 3}}] * 5, connection=connection)
        if number % 3 != 1:
            made |= {job.id for job in jobs}
    for number, connection in enumerate(connections):
        connection.execute("ROLLBACK" if number % 3 == 1 else "COMMIT")
    assert {job.id for job in real.list()} == made
    assert {event.job_id for event in all_events(real)} == made
    assert problems(real) == []
