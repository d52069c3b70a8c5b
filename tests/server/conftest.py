"""A server of an empty ledger on each store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Ledger
from tests.support.server import Client, RunningServer, running
from tests.support.stores import leave_to_torture

BOTH_STORES = {
    "test_claims.py",
    "test_exports.py",
    "test_hostile_values.py",
    "test_lone_enqueues.py",
    "test_other_queues.py",
    "test_readings.py",
    "test_streams.py",
}
"""Files of tests whose answers depend on the SQL of a store, or that wait for its changes.

`make test` runs the others on SQLite only, `make torture` also on PostgreSQL.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_torture(items, lambda item: item.path.parent == Path(__file__).parent and item.path.name not in BOTH_STORES)


@pytest.fixture
def empty_schema(warm_url: str) -> str:
    return warm_url


@pytest.fixture
def served(ledger: Ledger) -> Iterator[RunningServer]:
    with running(ledger) as server:
        yield server


@pytest.fixture
def admin(served: RunningServer) -> Client:
    return served.client()


@pytest.fixture
def worker(served: RunningServer) -> Client:
    return served.client("worker", "w-1").acting(Holdfast_Incarnation="boot1")
