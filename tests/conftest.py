"""The real parts the tests run against."""

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import hypothesis
import pytest

from tools.pgserver import PostgresServer

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.testing import ManualClock
    from tests.support.proxy import Proxy
    from tests.support.schemas import ReusedSchema

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True)
hypothesis.settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-seconds", type=float, default=8.0, help="How long workers are killed at random.")


MEMORY = Path("/dev/shm")  # noqa: S108 - names below it are drawn by tempfile
MEMORY_BYTES = 4 << 30
"""How much room the temporary files of the tests need, with a good margin."""


def pytest_configure() -> None:
    _use_memory()
    _take_signals()


def _use_memory() -> None:
    """Keep temporary files, those of the stores among them, in memory where there is room: a sync of a disk may take 10 ms.

    A TMPDIR that is set is left alone: `make test` with `TMPDIR=/tmp` runs on a disk.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def _take_signals() -> None:
    """Undo what a shell does to a command in the background: the command and its children ignore these signals."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def pg_server() -> Iterator[PostgresServer]:
    """The server that all tests of one process share. Leave it running: see `restartable_server`."""
    with PostgresServer.create() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(pg_server: PostgresServer) -> str:
    """A database on the shared server."""
    return pg_server.url


@pytest.fixture
def restartable_server() -> Iterator[PostgresServer]:
    """A server for one test alone, to be stopped and started at will."""
    with PostgresServer.create() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    found: str = request.getfixturevalue("empty_schema")
    return found


@pytest.fixture
def empty_schema(new_schema: str) -> str:
    """The address of an empty store on PostgreSQL: a new schema, if the folder of a test does not say otherwise."""
    return new_schema


@pytest.fixture
def new_schema(postgres_url: str) -> Iterator[str]:
    """The address of a new schema."""
    schema = f"hf_{uuid.uuid4().hex}"
    yield f"{postgres_url}?schema={schema}"
    drop_schema(postgres_url, schema)


@pytest.fixture(scope="session")
def reused_schema(postgres_url: str) -> "Iterator[ReusedSchema]":
    from tests.support.schemas import ReusedSchema

    schema = ReusedSchema(postgres_url)
    yield schema
    schema.close()


@pytest.fixture
def reused_url(reused_schema: "ReusedSchema") -> Iterator[str]:
    """The address of an empty ledger in a schema that other tests have used.

    A folder whose tests need no new schema returns this as its `empty_schema`. They close what they open: a worker that
    outlives its test would work in the ledger of the next.
    """
    yield reused_schema.url
    reused_schema.empty()


@pytest.fixture
def proxy(postgres_url: str) -> "Iterator[Proxy]":
    """Stands before the shared server and can cut connections."""
    from tests.support.proxy import Proxy

    port = urlsplit(postgres_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
def clock() -> "ManualClock":
    """A clock that stands still until it is moved."""
    from holdfast.testing import ManualClock

    return ManualClock()


@pytest.fixture
def ledger(store_url: str, clock: "ManualClock") -> "Iterator[Ledger]":
    """An empty ledger on each kind of store."""
    import holdfast

    ledger = holdfast.open(store_url, clock=clock)
    yield ledger
    ledger.close()


def drop_schema(server_url: str, schema: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(server_url, autocommit=True) as connection:
        # A test that leaves a transaction open should fail, not hang.
        connection.execute("SET lock_timeout = '10s'")
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
