"""Fences that a resource checks, in both kinds of database."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import psycopg
import pytest
from psycopg import rows

from holdfast import Fence, Ledger, check_fence
from holdfast.errors import FenceLost, ValidationError
from tests.support.processes import fleet
from tests.support.waiting import wait_until

Connect = Callable[..., Any]

OLD, NEW, RIVAL = Fence(7, 1, "old"), Fence(7, 2, "new"), Fence(7, 2, "rival")


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """New connections to one resource's database, each in a transaction."""
    made: list[Any] = []
    if request.param == "sqlite":

        def connect_sqlite() -> Any:
            connection = apsw.Connection(str(tmp_path / "resource.db"))
            connection.set_busy_timeout(10_000)
            connection.execute("BEGIN IMMEDIATE")
            made.append(connection)
            return connection

        yield connect_sqlite
        for connection in made:
            connection.close()
        return
    url: str = request.getfixturevalue("postgres_url")
    name = f"resource_{abs(hash(tmp_path))}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        there = url.rpartition("/")[0] + f"/{name}"

        def connect_postgres() -> Any:
            made.append(psycopg.connect(there))
            return made[-1]

        yield connect_postgres
        for connection in made:
            connection.close()
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def passes(connection: Any, fence: Fence, resource: str = "arm") -> bool:
    try:
        check_fence(connection, resource, fence)
    except FenceLost:
        return False
    return True


def begin(connection: Any) -> None:
    if isinstance(connection, apsw.Connection):
        connection.execute("BEGIN IMMEDIATE")


def test_an_older_attempt_is_refused_after_a_newer_one(connect: Connect) -> None:
    connection = connect()
    assert passes(connection, OLD)
    assert passes(connection, OLD)
    assert passes(connection, NEW)
    assert not passes(connection, OLD)
    assert passes(connection, NEW)
    # Another resource and another job are not affected.
    assert passes(connection, OLD, "other arm")
    assert passes(connection, Fence(8, 1, "old"))
    connection.execute("COMMIT")
    connection.close()

    again = connect()
    assert not passes(again, OLD)
    assert passes(again, NEW)
    assert passes(again, Fence(7, 3, "newer"))
    again.execute("COMMIT")


def test_the_same_attempt_with_another_token_is_refused(connect: Connect) -> None:
    connection = connect()
    assert passes(connection, NEW)
    assert not passes(connection, RIVAL)
    connection.execute("COMMIT")
    connection.close()
    again = connect()
    assert not passes(again, RIVAL)
    assert passes(again, NEW)
    again.execute("COMMIT")


def test_a_refusal_names_the_newest_attempt_and_keeps_the_transaction_usable(connect: Connect) -> None:
    connection = connect()
    connection.execute("CREATE TABLE writes (attempt integer)")
    check_fence(connection, "arm", NEW)
    connection.execute("INSERT INTO writes VALUES (2)")
    with pytest.raises(FenceLost) as caught:
        check_fence(connection, "arm", OLD)
    assert (caught.value.context["seen"], caught.value.context["attempt"]) == (2, 1)
    assert "old" not in str(caught.value)
    connection.execute("COMMIT")
    begin(connection)
    assert list(connection.execute("SELECT attempt FROM writes")) == [(2,)]


def test_a_rollback_undoes_the_fence(connect: Connect) -> None:
    connection = connect()
    assert passes(connection, NEW)
    connection.execute("ROLLBACK")
    begin(connection)
    assert passes(connection, OLD)
    connection.execute("COMMIT")
    begin(connection)
    assert passes(connection, RIVAL)
    assert not passes(connection, OLD)


def test_the_token_is_not_stored(connect: Connect) -> None:
    connection = connect()
    check_fence(connection, "arm", Fence(7, 1, "a very secret token"))
    kept = list(connection.execute("SELECT * FROM holdfast_fences"))
    assert len(kept) == 1
    assert "secret" not in repr(kept)


@pytest.mark.parametrize("tracer", [lambda cursor, row: {"row": row}, apsw.ext.DataClassRowFactory()])
def test_the_fence_commits_with_the_callers_rows_on_sqlite(tmp_path: Path, tracer: Any) -> None:
    connection = apsw.Connection(str(tmp_path / "resource.db"))
    connection.row_trace = tracer
    connection.execute("BEGIN IMMEDIATE")
    assert [passes(connection, fence) for fence in (OLD, NEW, OLD, RIVAL)] == [True, True, False, False]
    connection.close()


def test_the_fence_commits_with_the_callers_rows_on_postgres(connect: Connect) -> None:
    connection = connect()
    if isinstance(connection, psycopg.Connection):
        connection.row_factory = rows.dict_row
        connection.cursor_factory = psycopg.ClientCursor
    assert [passes(connection, fence) for fence in (OLD, NEW, OLD, RIVAL)] == [True, True, False, False]


def test_a_fence_check_outside_a_transaction_is_refused(tmp_path: Path, postgres_url: str) -> None:
    connection = apsw.Connection(str(tmp_path / "resource.db"))
    with pytest.raises(ValidationError):
        check_fence(connection, "arm", NEW)
    connection.close()
    with psycopg.connect(postgres_url, autocommit=True) as server, pytest.raises(ValidationError):
        check_fence(server, "arm", NEW)
    with pytest.raises(ValidationError):
        check_fence(object(), "arm", NEW)


def test_one_of_two_concurrent_attempts_is_refused(connect: Connect) -> None:
    """The older attempt waits for the newer one's transaction, and is then refused."""
    newer = connect()
    if isinstance(newer, apsw.Connection):
        # SQLite has one writer at a time: the other transaction cannot begin before.
        assert passes(newer, NEW)
        newer.execute("COMMIT")
        assert not passes(connect(), OLD)
        return
    check_fence(newer, "arm", Fence(1, 1, "there is a table"))
    newer.commit()
    older, watcher = connect(), connect()
    assert passes(newer, NEW)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()"

    def waiting() -> bool:
        found = watcher.execute(waits).fetchone()
        watcher.commit()
        return bool(found == (1,))

    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(passes, older, OLD)
        wait_until(waiting)
        newer.commit()
        assert refused.result(10) is False


def test_many_processes_may_create_the_table_of_fences_at_once(connect: Connect, tmp_path: Path) -> None:
    connection = connect()
    if isinstance(connection, apsw.Connection):
        connection.execute("PRAGMA user_version = 1")
        connection.execute("COMMIT")
        connection.close()
        path = str(tmp_path / "resource.db")
        assert fleet("workers.check_first_fence_in_file", 10, path=path) == [True] * 10
    else:
        url = f"postgresql://postgres@127.0.0.1:{connection.info.port}/{connection.info.dbname}"
        assert fleet("workers.check_first_fence", 10, url=url) == [True] * 10
    kept = connect().execute("SELECT count(*) FROM holdfast_fences").fetchone()
    assert kept == (10,)


def test_a_worker_that_lost_its_job_is_refused_by_the_resource(real: Ledger, connect: Connect) -> None:
    """The job is claimed, stalled and claimed by another worker. The first worker does not know that yet."""
    real.enqueue("move")
    [first] = real.claim("first", start=True)
    real.release(first.fence)
    [second] = real.claim("second", start=True)
    resource = connect()
    assert passes(resource, second.fence)
    assert not passes(resource, first.fence)
