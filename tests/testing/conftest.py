"""Apps on manual clocks."""

from collections.abc import Iterator

import pytest

from holdfast import App
from holdfast.testing import ManualClock, NoJitter, check_all


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
