"""The PostgreSQL server the other tests rely on."""

import select
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tools.pgserver import VERSION, PostgresServer

ROOT = Path(__file__).parents[2]


def test_the_shared_server_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT version()").fetchone()
    assert row is not None
    assert row[0].startswith(f"PostgreSQL {VERSION}.")


@pytest.mark.parametrize(("setting", "value"), [("max_connections", "400"), ("fsync", "on"), ("port", None)])
def test_the_shared_server_has_the_documented_settings(pg_server: PostgresServer, setting: str, value: str | None) -> None:
    with psycopg.connect(pg_server.url) as connection:
        row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
    assert row == (value or str(pg_server.port),)


def test_a_crash_ends_sessions_and_keeps_commits(restartable_server: PostgresServer) -> None:
    url = restartable_server.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        restartable_server.stop_immediate()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    restartable_server.start()

    assert restartable_server.url == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)


def test_an_orderly_stop_needs_no_recovery(restartable_server: PostgresServer) -> None:
    restartable_server.stop()
    restartable_server.start()
    assert "was not properly shut down" not in restartable_server.log


def test_the_server_ends_with_a_process_that_is_killed() -> None:
    program = """
import sys
from tools.pgserver import PostgresServer
server = PostgresServer.create()
print(server.url, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with psycopg.connect(url, autocommit=True) as connection:
            process.kill()
            # Becomes readable when the server hangs up.
            select.select([connection.fileno()], [], [], 60)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
