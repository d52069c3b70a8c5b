"""Fleets for tests of faults."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest

from tests.blast.fleet import Fleet
from tests.conftest import schema_at

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record whether a test has failed, so that its fixtures can read it."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="module")
def schema_url(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Make urls of empty stores on the shared server."""
    with ExitStack() as schemas:
        yield lambda: schemas.enter_context(schema_at(postgres_url))


class Shared:
    """One fleet for the tests of a module. After a failed test the next one gets a new fleet."""

    def __init__(self, make: Callable[[], Fleet]) -> None:
        self._make = make
        self._fleet: Fleet | None = None

    def get(self) -> Fleet:
        if self._fleet is None:
            self._fleet = self._make().__enter__()
        return self._fleet

    def finish(self) -> None:
        if self._fleet is not None:
            try:
                self._fleet.finish()
            finally:
                self.give_up()

    def give_up(self) -> None:
        if self._fleet is not None:
            fleet, self._fleet = self._fleet, None
            fleet.__exit__(None, None, None)


@pytest.fixture(scope="module")
def make_fleet(schema_url: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Fleet]:
    """Make the fleets of a module, each with its own ledger. A module that needs other fleets overrides this fixture."""
    return lambda: Fleet(schema_url(), tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def shared(make_fleet: Callable[[], Fleet]) -> Iterator[Shared]:
    shared = Shared(make_fleet)
    yield shared
    shared.finish()


@pytest.fixture
def fleet(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A running fleet that the tests of a module share."""
    yield shared.get()
    if request.node.stash.get(FAILED, False):
        shared.give_up()
