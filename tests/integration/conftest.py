"""What the integration tests share: ledgers on the real clock, and stores of one kind."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from tests.conftest import drop_schema

Opener = Callable[..., Ledger]


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
def real(store_url: str, opened: Opener) -> Ledger:
    """An empty ledger on each kind of store, on the real clock."""
    return opened(store_url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture
def pg_url(postgres_url: str) -> Iterator[str]:
    """An empty store on PostgreSQL."""
    schema = f"hf_{uuid.uuid4().hex}"
    yield f"{postgres_url}?schema={schema}"
    drop_schema(postgres_url, schema)


@pytest.fixture
def on_sqlite(sqlite_url: str, opened: Opener) -> Ledger:
    return opened(sqlite_url)


@pytest.fixture
def on_postgres(pg_url: str, opened: Opener) -> Ledger:
    return opened(pg_url)
