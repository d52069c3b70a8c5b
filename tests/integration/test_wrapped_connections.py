"""Enqueueing in transactions of SQLAlchemy and Django, and refusals of drivers that cannot be used."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django as django_itself
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import holdfast
from holdfast import Ledger
from holdfast.errors import FenceLost, UnsupportedConnection, ValidationError
from tests.support.histories import count_jobs, problems


@pytest.fixture
def pg_url(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


@pytest.fixture
def django(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Django's connections: `default` to the server, `file` to a file."""
    found = psycopg.conninfo.conninfo_to_dict(postgres_url)
    databases = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": found["dbname"],
            "USER": found.get("user", ""),
            "PASSWORD": found.get("password", ""),
            "HOST": found.get("host", ""),
            "PORT": found.get("port", ""),
        },
        "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "django.db")},
    }
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django_itself.setup()
    handler = type(connections)(databases)
    monkeypatch.setattr("django.db.transaction.connections", handler, raising=False)
    monkeypatch.setattr("django.db.connections", handler)
    yield handler
    handler.close_all()


# SQLAlchemy


@pytest.mark.parametrize("wrap", [lambda session: session, lambda session: session.connection()], ids=["session", "connection"])
def test_a_job_is_committed_with_a_session(
    on_postgres: Ledger, engine: sqlalchemy.Engine, wrap: Callable[[Session], Any]
) -> None:
    with Session(engine) as session, session.begin():
        job = on_postgres.enqueue("ship", {"order": 1}, connection=wrap(session))
        more = on_postgres.enqueue_many([{"kind": "ship"}] * 2, connection=wrap(session))
        assert count_jobs(on_postgres) == 0
    assert [found.id for found in on_postgres.list()] == [job.id, *(one.id for one in more)]
    with Session(engine) as session:
        on_postgres.enqueue("ship", connection=wrap(session))
        session.rollback()
    assert count_jobs(on_postgres) == 3
    assert problems(on_postgres) == []


def test_a_session_that_begins_with_the_enqueue_commits_it(on_postgres: Ledger, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        on_postgres.enqueue("ship", connection=session)
        session.commit()
    with engine.connect() as connection:
        on_postgres.enqueue("ship", connection=connection)
        connection.commit()
    with engine.begin() as connection:
        on_postgres.enqueue("ship", connection=connection)
    registry = scoped_session(sessionmaker(engine))
    on_postgres.enqueue("ship", connection=registry)
    registry.commit()
    registry.remove()
    assert count_jobs(on_postgres) == 4


def test_a_nested_transaction_is_rolled_back_alone(on_postgres: Ledger, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session, session.begin():
        kept = on_postgres.enqueue("kept", connection=session)
        nested = session.begin_nested()
        on_postgres.enqueue("dropped", connection=session)
        nested.rollback()
    assert [job.id for job in on_postgres.list()] == [kept.id]


def test_an_engine_in_autocommit_is_refused(on_postgres: Ledger, engine: sqlalchemy.Engine) -> None:
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        with pytest.raises(ValidationError, match="no open transaction") as caught:
            on_postgres.enqueue("ship", connection=connection)
        assert caught.value.context["field"] == "connection"
    assert count_jobs(on_postgres) == 0


def test_a_fence_is_checked_in_a_session(on_postgres: Ledger, engine: sqlalchemy.Engine) -> None:
    on_postgres.enqueue("ship", policy={"attempts_max": 3})
    [first] = on_postgres.claim("worker", start=True)
    on_postgres.release(first.fence)
    [second] = on_postgres.claim("worker", start=True)
    resource = f"orders-{on_postgres.id}"
    with Session(engine) as session, session.begin():
        holdfast.check_fence(session, resource, second.fence)
    with Session(engine) as session, pytest.raises(FenceLost):
        holdfast.check_fence(session, resource, first.fence)


# Django


def test_a_job_is_committed_with_an_atomic_block(on_postgres: Ledger, django: Any) -> None:
    with transaction.atomic():
        job = on_postgres.enqueue("ship", connection=django["default"])
        with transaction.atomic():
            on_postgres.enqueue("dropped", connection=django["default"])
            transaction.set_rollback(True)
        assert count_jobs(on_postgres) == 0
    assert [found.id for found in on_postgres.list()] == [job.id]
    with transaction.atomic():
        on_postgres.enqueue("ship", connection=django["default"])
        transaction.set_rollback(True)
    assert count_jobs(on_postgres) == 1
    assert problems(on_postgres) == []


def test_an_enqueue_without_an_atomic_block_is_refused(on_postgres: Ledger, django: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValidationError, match="no open transaction"):
            on_postgres.enqueue("ship", connection=django["default"])
        django["default"].ensure_connection()
    assert count_jobs(on_postgres) == 0


def test_the_proxy_connection_of_django_is_accepted(on_postgres: Ledger, django: Any) -> None:
    from django.utils.connection import ConnectionProxy

    with transaction.atomic():
        on_postgres.enqueue("ship", connection=ConnectionProxy(django, "default"))
    assert count_jobs(on_postgres) == 1


# Other drivers


def refused(ledger: Ledger, connection: Any) -> UnsupportedConnection:
    with pytest.raises(UnsupportedConnection) as caught:
        ledger.enqueue("ship", connection=connection)
    assert caught.value.code == "unsupported_connection"
    assert caught.value.context["field"] == "connection"
    assert count_jobs(ledger) == 0
    return caught.value


def stand_in(driver: str) -> Any:
    """An object of the class of such a driver's connections.

    The drivers are not installed: only the name of the class is read.
    """
    return type("Connection", (), {"__module__": driver})()


@pytest.mark.parametrize("driver", ["asyncpg.connection", "psycopg2.extensions", "aiosqlite.core", "pymysql.connections"])
def test_a_refusal_names_the_other_driver(real: Ledger, driver: str) -> None:
    error = refused(real, stand_in(driver))
    assert error.context["driver"] == driver.partition(".")[0]
    assert driver in error.message
    assert error.action != UnsupportedConnection.action


def test_a_refusal_names_sqlite3_below_a_wrapper(on_sqlite: Ledger, tmp_path: Path, django: Any) -> None:
    """Never on the ledger's own file: two SQLite libraries on one file break its locks."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/alchemy.db")
    with Session(engine) as session:
        error = refused(on_sqlite, session)
        assert error.context["driver"] == "sqlite3"
        assert "PostgreSQL" in error.action
    engine.dispose()
    with transaction.atomic(using="file"):
        assert refused(on_sqlite, django["file"]).context["driver"] == "sqlite3"
    plain = sqlite3.connect(tmp_path / "plain.db")
    assert refused(on_sqlite, plain).context["driver"] == "sqlite3"
    plain.close()


def test_an_async_connection_needs_await(on_postgres: Ledger) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession

    error = refused(on_postgres, AsyncSession())
    assert "holdfast.aio" in error.action
