"""A server of an empty ledger on each store."""

from collections.abc import Iterator

import pytest

from holdfast import Ledger
from tests.support.server import Client, RunningServer, running


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
