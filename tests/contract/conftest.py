"""Agents of the ledger under test, and an empty schema for each test, which is emptied and reused, as are the connections."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.support.host import Host
from tests.support.near import serves
from tests.support.schemas import ReusedConnections
from tests.support.signers import enrol, opened


@pytest.fixture(scope="module")
def reused_connections() -> Iterator[ReusedConnections]:
    """Connections that end with their module: tests of other folders count the sessions of the server."""
    connections = ReusedConnections()
    yield connections
    connections.close()


@pytest.fixture
def empty_schema(reused_url: str, reused_connections: ReusedConnections) -> Iterator[str]:
    with reused_connections.used():
        yield reused_url


SERVED = ("http", "http-postgres")
"""A server of a ledger on SQLite, and one on PostgreSQL."""
COUNTED = "a remote ledger is opened with a token, which is counted"
OF_A_STORE = "it looks at how a store settles the rows of one claim, and a server sends jobs with fences instead"
NOT_SERVED = {
    "test_access.py::test_an_expired_token_does_not_count": COUNTED,
    "test_access.py::test_tokens_that_a_server_made_for_itself_do_not_count": COUNTED,
    "test_preconditions.py::test_a_role_that_the_table_allows_is_the_actor_of_the_event": "no caller acts as the system by name",
    "test_settle_many.py::test_a_claim_that_is_settled_at_once_looks_like_single_completions": OF_A_STORE,
    "test_settle_many.py::test_a_late_claim_is_settled_by_the_usual_way": OF_A_STORE,
    "test_settle_many.py::test_an_older_attempt_cannot_settle_a_claim": OF_A_STORE,
    "test_settle_many.py::test_batches_of_several_callers_keep_their_own_ids": OF_A_STORE,
    "test_settle_many.py::test_only_jobs_of_one_claim_can_be_settled_alike": OF_A_STORE,
    "test_settle_many.py::test_settling_a_claim_again_changes_nothing": OF_A_STORE,
    "test_settle_many.py::test_settling_a_claim_leaves_out_jobs_that_were_lost": OF_A_STORE,
}
"""Tests of what a remote ledger does not have, and why."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run on a server only the tests that use `ledger`, and not those of `NOT_SERVED`."""
    left_out = [item for item in items if _is_served(item) and not _can_be_served(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


ON_POSTGRES = {
    "test_batches.py",
    "test_claiming.py",
    "test_late_holder.py",
    "test_readings.py",
    "test_request_answers.py",
    "test_request_ids.py",
    "test_timeline.py",
}
"""The files that also run through a server on PostgreSQL: keys, batches, late holders, and answers whose SQL differs most.

All files run on PostgreSQL, and through a server on SQLite. All of them through both would take as long as both together.
"""


def _store_kind(item: pytest.Item) -> str | None:
    called = getattr(item, "callspec", None)
    return None if called is None else called.params.get("store_url")


def _is_served(item: pytest.Item) -> bool:
    return _store_kind(item) in SERVED


def _can_be_served(item: pytest.Item) -> bool:
    if _store_kind(item) == "http-postgres" and item.path.name not in ON_POSTGRES:
        return False
    name = getattr(item, "originalname", item.name)
    return "ledger" in item.fixturenames and f"{item.path.name}::{name}" not in NOT_SERVED  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """The server of a module's tests. Each of them has a ledger of its own."""
    with Host() as host:
        yield host


@pytest.fixture(params=["sqlite", "postgres", *SERVED])
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind. For those of `SERVED`, `ledger` is open on a server of it."""
    found: str = request.getfixturevalue("empty_schema" if request.param.endswith("postgres") else "sqlite_url")
    return found


@pytest.fixture
def ledger(
    request: pytest.FixtureRequest, store_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ledger]:
    """An empty ledger on each kind of store, and on a server."""
    with holdfast.open(store_url, clock=clock) as ledger:
        if request.node.callspec.params["store_url"] in SERVED:
            host: Host = request.getfixturevalue("host")
            monkeypatch.setattr("holdfast.server.readings.OVERVIEW_SECONDS", 0.0)  # tests change the ledger and look again
            with (
                host.serving(ledger) as server,
                holdfast.open(server.url, token=server.client().token) as remote,
                serves(ledger, remote),
            ):
                yield remote
        else:
            yield ledger


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


@pytest.fixture
def bob(ledger: Ledger) -> Agent:
    return Agent(ledger, "bob")


@pytest.fixture
def signing(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """A ledger with all keys."""
    with opened(store_url, clock) as ledger:
        enrol(ledger)
        yield ledger
