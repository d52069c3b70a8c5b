"""Both kinds of stores, as the benchmark uses them."""

from pathlib import Path

import pytest

from bench.places import Host, PostgresHost, SqliteHost
from tools.pgserver import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    if request.param == "sqlite":
        return SqliteHost(tmp_path)
    server: PostgresServer = request.getfixturevalue("pg_server")
    return PostgresHost(server)
