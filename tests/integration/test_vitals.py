"""`diagnose` on real files and a real server."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import Ledger
from holdfast.errors import Unavailable
from tools.pgserver import PostgresServer


@pytest.fixture
def on_file(tmp_path: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
        yield ledger


def words(ledger: Ledger) -> dict[str, str]:
    return {finding.code: f"{finding.severity.value}: {finding.words}" for finding in ledger.diagnose().findings}


def test_a_file_that_others_may_write_to_is_a_warning(on_file: Ledger, tmp_path: Path):
    (tmp_path / "jobs.db").chmod(0o600)
    assert words(on_file)["permissions"].startswith("well")
    (tmp_path / "jobs.db").chmod(0o666)
    assert words(on_file)["permissions"] == f"warning: others may write to {tmp_path}/jobs.db (0666)"


def test_the_settings_of_a_file_are_reported(on_file: Ledger):
    assert words(on_file)["durability"] == "well: journal_mode = wal, synchronous = full"
    assert "GiB are free" in words(on_file)["disk"]


def test_the_oldest_open_writer_is_reported_as_the_horizon(on_postgres: Ledger, postgres_url: str):
    with psycopg.connect(postgres_url, application_name="left-open") as writer:
        writer.execute("SELECT pg_current_xact_id()")
        pid = writer.info.backend_pid
        found = words(on_postgres)
        assert f"followers wait for process {pid} of " in found["horizon"]
        assert "(left-open), idle in transaction" in found["horizon"]
        writer.rollback()
    assert f"process {pid} " not in words(on_postgres)["horizon"]


def test_an_open_reader_delays_vacuum_only(on_postgres: Ledger, postgres_url: str):
    with psycopg.connect(postgres_url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM pg_class")
        pid = f"process {reader.info.backend_pid} "
        found = words(on_postgres)
        assert pid in found["oldest_transaction"]
        assert pid not in found["horizon"]


def test_the_settings_of_a_server_are_reported(on_postgres: Ledger):
    assert "fsync = " in words(on_postgres)["durability"]
    assert on_postgres.diagnose().store_version.startswith("PostgreSQL 1")


def until_refused(connect: Callable[[], AbstractContextManager[object]], kept: ExitStack) -> None:
    while True:
        kept.enter_context(connect())


def test_a_server_without_a_free_connection():
    """The doctor warns before, and the error of a program that finds none says what to do."""
    with PostgresServer.create(max_connections=8) as server, ExitStack() as kept:
        ledger = kept.enter_context(holdfast.open(server.url))
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE ROLE plain LOGIN")
            assert re.fullmatch("well: [1-4] of the server's 5 connections are in use", words(ledger)["connections"])
        plain = server.url.replace("postgres@", "plain@")
        with pytest.raises(psycopg.OperationalError):
            until_refused(lambda: psycopg.connect(plain), kept)
        assert words(ledger)["connections"] == "warning: 5 of the server's 5 connections are in use, more than 80%"
        for url in (plain, server.url):
            with pytest.raises(Unavailable, match="cannot reach the database") as refused, ExitStack() as more:
                until_refused(lambda url=url: holdfast.open(url), more)  # type: ignore[misc]
            assert refused.value.action.startswith("All connections of the server are in use.")
