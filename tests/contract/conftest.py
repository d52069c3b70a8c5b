"""Agents of the ledger under test, and an empty schema for each test, which is emptied and reused, as are the connections."""

from collections.abc import Iterator

import pytest

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.testing import ManualClock
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
