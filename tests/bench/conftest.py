"""Both kinds of stores, as the benchmark uses them."""

from pathlib import Path

import pytest

from bench.places import Host, PostgresHost, SqliteHost
from tools.pgserver import PostgresServer

ONE_STORE = {"events", "history", "http", "idle", "memory", "recovery", "schedules", "seal", "signed"}
"""Figures that take long. `make test` measures them on SQLite only, `make torture` also on PostgreSQL."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if params.get("host") == "postgres" and params.get("name") in ONE_STORE:
            item.add_marker(pytest.mark.torture)


@pytest.fixture(params=["sqlite", "postgres"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    if request.param == "sqlite":
        return SqliteHost(tmp_path)
    server: PostgresServer = request.getfixturevalue("pg_server")
    return PostgresHost(server)
