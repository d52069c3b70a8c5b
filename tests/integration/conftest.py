"""Fixtures of the integration tests: ledgers on the real clock, and stores of one kind."""

from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast import Ledger

Opener = Callable[..., Ledger]


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens ledgers and closes them at the end."""
    ledgers: list[Ledger] = []

    def opener(url: str, **options: object) -> Ledger:
        ledgers.append(holdfast.open(url, **options))  # type: ignore[arg-type]
        return ledgers[-1]

    yield opener
    for ledger in ledgers:
        ledger.close()


@pytest.fixture
def pg_url(new_schema: str) -> str:
    """A new store on PostgreSQL, for tests that look at the tables, the plans or the statements of the server."""
    return new_schema


@pytest.fixture
def on_sqlite(sqlite_url: str, opened: Opener) -> Ledger:
    return opened(sqlite_url)


@pytest.fixture
def on_postgres(pg_url: str, opened: Opener) -> Ledger:
    return opened(pg_url)
