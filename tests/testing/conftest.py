"""Apps on manual clocks."""

from collections.abc import Iterator

import pytest

from holdfast import App
from holdfast.testing import ManualClock, NoJitter, check_all
from tests.support.stores import leave_to_torture


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A drain uses the verbs of a ledger, which are the same on both stores."""
    leave_to_torture(items, lambda item: item.path.name == "test_drain.py")


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def app(store_url: str, clock: ManualClock) -> Iterator[App]:
    """An app on an empty ledger of each kind of store; at the end its histories are checked."""
    app = App(store_url, clock=clock, entropy=NoJitter())
    yield app
    assert check_all(app.ledger) == []
    app.close()
