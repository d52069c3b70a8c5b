"""One rich ledger for each kind of store, exported once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import schema_at
from tests.verify.rich import Exported, exported


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("rich")
        yield exported(f"sqlite:///{folder}/holdfast.db")
        return
    with schema_at(request.getfixturevalue("postgres_url")) as url:
        yield exported(url)
