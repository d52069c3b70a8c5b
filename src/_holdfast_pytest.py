"""The pytest plugin. It is outside the package, so that pytest does not import Holdfast unless a fixture is used."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast import App, Ledger
    from holdfast.testing import ManualClock


@pytest.fixture
def holdfast_clock() -> "ManualClock":
    """The test's clock. Its time changes only when the test advances it."""
    from holdfast.testing import ManualClock

    return ManualClock()


@pytest.fixture
def holdfast_url(tmp_path: Path) -> str:
    """The url of the test's ledger, a SQLite file. Override this fixture to test on PostgreSQL."""
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture
def holdfast_ledger(holdfast_url: str, holdfast_clock: "ManualClock") -> "Iterator[Ledger]":
    """An empty ledger on the test's clock. After the test, the history of every job in it is checked."""
    import holdfast
    from holdfast.testing import NoJitter, check_all

    with holdfast.open(holdfast_url, clock=holdfast_clock, entropy=NoJitter()) as ledger:
        yield ledger
        violations = check_all(ledger)
    if violations:
        pytest.fail("inconsistent job histories:\n" + "\n".join(map(str, violations)), pytrace=False)


@pytest.fixture
def holdfast_bind(
    holdfast_url: str, holdfast_clock: "ManualClock", holdfast_ledger: "Ledger"
) -> "Iterator[Callable[[App], App]]":
    """`holdfast_bind(app)` returns a copy of the program's app on the test's ledger and clock, until the test ends."""
    from holdfast.testing import NoJitter

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(app.bound_to(holdfast_url, clock=holdfast_clock, entropy=NoJitter()))


@pytest.fixture
def holdfast_app(holdfast_url: str, holdfast_bind: "Callable[[App], App]") -> "App":
    """An app for the test, without handlers, on the test's ledger and clock."""
    from holdfast import App

    return holdfast_bind(App(holdfast_url))
