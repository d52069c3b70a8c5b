"""The real parts the tests run against."""

import gc
import logging
import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
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
    from tests.support.schemas import ReusedConnections, ReusedSchema

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True)
hypothesis.settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-seconds", type=float, default=5.0, help="How long workers are killed at random.")


LONG = (
    "blast/test_outages.py", "blast/test_silent_connections.py", "property/test_three_ways.py", "property/test_fold.py",
    "blast/test_locked_jobs.py", "supervise/test_task_run.py", "integration/test_sweeping.py", "integration/test_uptime.py",
    "blast/test_open_transactions.py", "blast/test_frozen_workers.py", "server/test_generated_requests.py", "bench/test_slice.py",
    "worker/test_random_kills.py", "blast/test_clock_steps.py", "integration/test_all_verbs.py", "integration/test_plans.py",
    "server/test_server_fleet.py", "server/test_metrics.py", "integration/test_groups.py", "supervise/test_hangs.py",
    "blast/test_locked_tables.py", "integration/test_locks.py", "integration/test_claims.py", "types/test_types.py",
    "integration/test_relay.py", "worker/test_processes.py", "supervise/test_restarts.py", "supervise/test_jobs.py",
)  # fmt: skip
"""The files with the longest tests, roughly longest first: `make test ARGS=--durations=20` shows them."""
SPREAD = 0.6
"""The long files are spread over this part of what each process runs."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the long files over what each process runs.

    Long tests mostly wait. If all processes ran them at the same time, no processor would be busy; if one ran last, the other
    processes would idle. `--dist worksteal` gives each process an equal part of the list.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1:
        return
    folder = Path(__file__).parent
    long: dict[Path, list[pytest.Item]] = {folder / name: [] for name in LONG}
    usual: list[pytest.Item] = []
    for item in items:
        long.get(item.path, usual).append(item)
    files = list(long.values())
    total, ordered = len(items), list[pytest.Item]()
    for process in range(processes):
        own = files[process::processes]
        room = max(0, (total - len(ordered)) // (processes - process) - sum(map(len, own)))
        ordered += _spread(own, usual[:room])
        del usual[:room]
    items[:] = ordered + usual


def _spread(files: list[list[pytest.Item]], usual: list[pytest.Item]) -> list[pytest.Item]:
    """Return the usual tests with a long file at equal distances, the first one first, and each between two other files."""
    left, mixed = list(files), list[pytest.Item]()
    for number, item in enumerate(usual):
        due = number >= len(usual) * SPREAD * (len(files) - len(left)) / len(files) if left else False
        if due and (number == 0 or usual[number - 1].path != item.path):
            mixed += left.pop(0)
        mixed.append(item)
    return mixed + [item for file in left for item in file]


def pytest_collection_finish() -> None:
    """Keep the collector from looking at every test again and again. They live until the end."""
    gc.freeze()


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
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind."""
    found: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "empty_schema")
    return found


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of an empty store in a file."""
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture
def empty_schema(new_schema: str) -> str:
    """The address of an empty store on PostgreSQL: a new schema, if the folder of a test does not say otherwise."""
    return new_schema


@pytest.fixture
def new_schema(postgres_url: str) -> Iterator[str]:
    """The address of a new schema."""
    with schema_at(postgres_url) as url:
        yield url


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a store of each kind that the tests of a module share."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('shared')}/holdfast.db"
        return
    with schema_at(request.getfixturevalue("postgres_url")) as url:
        yield url


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


@pytest.fixture(scope="module")
def reused_connections() -> "Iterator[ReusedConnections]":
    """Connections that end with their module: some tests count the sessions of the server."""
    from tests.support.schemas import ReusedConnections

    connections = ReusedConnections()
    yield connections
    connections.close()


@pytest.fixture
def warm_url(reused_url: str, reused_connections: "ReusedConnections") -> Iterator[str]:
    """Like `reused_url`. The connections of ledgers that this process opens are reused, too."""
    with reused_connections.used():
        yield reused_url


@pytest.fixture
def proxy(postgres_url: str) -> "Iterator[Proxy]":
    """Stands before the shared server and can cut connections."""
    from tests.support.proxy import Proxy

    port = urlsplit(postgres_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """For a test that sets up logging, itself or by a command: the root logger is as before afterwards.

    Otherwise the lines of later tests would go to a stream that pytest has closed.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)


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


@pytest.fixture
def real(store_url: str) -> "Iterator[Ledger]":
    """An empty ledger on each kind of store, on the real clock."""
    import holdfast

    with holdfast.open(store_url) as ledger:
        yield ledger


@contextmanager
def schema_at(server_url: str) -> Iterator[str]:
    """The address of a new schema, which is dropped at the end."""
    schema = f"hf_{uuid.uuid4().hex}"
    try:
        yield f"{server_url}?schema={schema}"
    finally:
        drop_schema(server_url, schema)


def drop_schema(server_url: str, schema: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(server_url, autocommit=True) as connection:
        # A test that leaves a transaction open should fail, not hang.
        connection.execute("SET lock_timeout = '10s'")
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
