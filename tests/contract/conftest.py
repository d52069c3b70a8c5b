"""Agents at the ledger under test, and an empty schema for each test, which on PostgreSQL is emptied and used again."""

import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent


class ReusedSchema:
    """A schema that is emptied after each test: making one takes fifty times as long."""

    def __init__(self, server_url: str) -> None:
        schema = f"hf_{uuid.uuid4().hex}"
        self.url = f"{server_url}?schema={schema}"
        holdfast.open(self.url).close()
        self._connection = psycopg.connect(server_url, autocommit=True)
        # A test that leaves a transaction open should fail, not hang.
        self._connection.execute("SET lock_timeout = '10s'")
        tables = self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        numbers = self._connection.execute("SELECT sequencename, start_value FROM pg_sequences WHERE schemaname = %s", [schema])
        statements = [f"DELETE FROM {schema}.{table}" for (table,) in tables if table != "schema_version"]
        statements += [f"SELECT setval('{schema}.{name}', {start}, false)" for name, start in numbers.fetchall()]
        self._empty = "; ".join([*statements, f"INSERT INTO {schema}.meta VALUES ('ledger_id', '%s')"])

    def empty(self) -> None:
        """What is left is a ledger with another id in which nothing has happened yet."""
        self._connection.execute(self._empty % secrets.token_hex(4))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def reused_schema(postgres_url: str) -> Iterator[ReusedSchema]:
    schema = ReusedSchema(postgres_url)
    yield schema
    schema.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/holdfast.db"
        return
    schema: ReusedSchema = request.getfixturevalue("reused_schema")
    yield schema.url
    schema.empty()


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


@pytest.fixture
def bob(ledger: Ledger) -> Agent:
    return Agent(ledger, "bob")
