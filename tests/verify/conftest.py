"""One rich ledger for each kind of store, exported once."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import drop_schema
from tests.verify.rich import Exported, exported


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("rich")
        yield exported(f"sqlite:///{folder}/holdfast.db")
        return
    server_url: str = request.getfixturevalue("postgres_url")
    schema = f"hf_{uuid.uuid4().hex}"
    yield exported(f"{server_url}?schema={schema}")
    drop_schema(server_url, schema)
