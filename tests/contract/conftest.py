"""Agents of the ledger under test, and an empty schema for each test, which is emptied and reused, as are the connections."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.support.schemas import ReusedConnections
from tests.support.server import Host
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


NOT_SERVED = {
    "test_access.py": "browser sessions and login codes are made on the server",
    "test_bulk.py::test_a_repeated_request_has_the_same_answers": "a server has no batches of chosen jobs yet",
    "test_escalation.py": "a relay runs near the database",
    "test_history.py": "a server has no readings for dashboards yet",
    "test_outbox.py": "a relay runs near the database",
    "test_queues.py::test_queues_with_the_numbers_of_the_totals": "the totals are written near the database",
    "test_readings.py": "a server has no readings for dashboards yet",
    "test_runs.py": "a supervisor needs the database",
    "test_diagnose.py::test_a_dead_sink_is_reported": "a relay runs near the database",
    "test_dialects.py::test_a_sink_gets_events_in_its_dialect": "a relay runs near the database",
    "test_dialects.py::test_a_sink_without_payloads_gets_no_secret": "a relay runs near the database",
    "test_agents.py::test_another_agents_task_is_a_conflict_with_holder_and_time": "a time in a context is a text over HTTP",
    "test_cascades.py::test_the_number_of_dependents_and_the_size_of_a_cascade_are_limited": "it checks 10,000 jobs one by one",
    "test_clock.py::test_a_sweep_that_could_not_reach_the_store_stalls_no_holder": "it replaces the store",
    "test_preconditions.py::test_a_role_that_the_table_allows_is_the_actor_of_the_event": "no caller acts as the system by name",
    "test_retention.py::test_the_focus_of_an_agent_is_deleted_if_it_holds_nothing": "it reads the store",
    "test_timeline.py": "a server has no readings for dashboards yet",
    "test_settle_many.py": "it settles the rows of a claim, which a server does not send",
}
"""Files and tests of what a remote ledger does not have, and why."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run on a server only the tests that use `ledger`, and not those of `NOT_SERVED`."""
    left_out = [item for item in items if _is_served(item) and not _can_be_served(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_served(item: pytest.Item) -> bool:
    called = getattr(item, "callspec", None)
    return called is not None and called.params.get("store_url") == "http"


def _can_be_served(item: pytest.Item) -> bool:
    name = getattr(item, "originalname", item.name)
    return "ledger" in item.fixturenames and not {item.path.name, f"{item.path.name}::{name}"} & NOT_SERVED.keys()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """The server of a module's tests. Each of them has a ledger of its own."""
    with Host() as host:
        yield host


@pytest.fixture(params=["sqlite", "postgres", "http"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind. `http` is SQLite, and `ledger` is open on a server of it."""
    found: str = request.getfixturevalue("empty_schema" if request.param == "postgres" else "sqlite_url")
    return found


@pytest.fixture
def ledger(request: pytest.FixtureRequest, store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """An empty ledger on each kind of store, and on a server."""
    with holdfast.open(store_url, clock=clock) as ledger:
        if request.node.callspec.params["store_url"] == "http":
            host: Host = request.getfixturevalue("host")
            with host.serving(ledger) as server, holdfast.open(server.url, token=server.client().token) as remote:
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
