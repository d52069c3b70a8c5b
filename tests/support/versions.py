"""Invented later versions of Holdfast: the same code with more migrations."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
import holdfast.store.postgres.migration
import holdfast.store.postgres.vitals
import holdfast.store.sqlite.store
import holdfast.store.sqlite.vitals
from holdfast.store import statements
from tests.blast.place import Place

SOURCE = Path(holdfast.__file__).parent
TABLES = (
    *("meta", "cursors", "requests", "policies", "settings", "declarations", "profiles", "jobs", "dependencies", "queues"),
    *("event_rows", "event_batches", "open_claims", "sinks", "key_log", "tiles", "heads", "workers", "duties", "agents", "runs"),
    *("tokens", "sessions", "login_codes"),
    *("totals", "history", "history_names", "history_progress"),
)
"""The tables of both stores. Each gets a column: a statement that relied on the number of columns would fail."""
SECOND = "\n".join(
    [
        "CREATE TABLE holdfast.made_up (run integer NOT NULL);",
        # One row for each time that the migration runs.
        "INSERT INTO holdfast.made_up (run) VALUES (2);",
        *(f"ALTER TABLE holdfast.{table} ADD COLUMN made_up integer NOT NULL DEFAULT 7;" for table in TABLES),
        "CREATE INDEX made_up_jobs ON holdfast.jobs (made_up, id) WHERE status = 'queued';",
    ]
)
"""A second version, for both stores."""
THIRD = """
ALTER TABLE holdfast.made_up ADD COLUMN note text;
INSERT INTO holdfast.made_up (run, note) VALUES (3, 'three');
CREATE INDEX made_up_note ON holdfast.made_up (note);
"""
"""A third version. It needs the second one."""
NAMES = ("second", "third", "fourth")


def add_versions(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Make this process a later version, whose migrations are followed by these. Ledgers that are open stay as they are."""
    of_package = {package: later_migrations(package, texts) for package in ("holdfast.store.sqlite", "holdfast.store.postgres")}
    for module in (
        holdfast.store.postgres.migration,
        holdfast.store.postgres.vitals,
        holdfast.store.sqlite.store,
        holdfast.store.sqlite.vitals,
    ):
        monkeypatch.setattr(module, "migrations", of_package.__getitem__)


def later_migrations(package: str, texts: Sequence[str]) -> tuple[statements.Migration, ...]:
    known = statements.migrations(package)
    numbers = range(known[-1].version + 1, known[-1].version + 1 + len(texts))
    texts = [_dialect(text) if package.endswith("sqlite") else text for text in texts]
    return known + tuple(map(statements.Migration, numbers, NAMES, texts))


def copy_source(folder: Path, *texts: str) -> Path:
    """Copy the package, with these migrations more, for programs to import. Return the folder to import it from."""
    shutil.copytree(SOURCE, folder / "holdfast")
    for store in ("sqlite", "postgres"):
        for migration in later_migrations(f"holdfast.store.{store}", texts)[-len(texts) :]:
            name = f"{migration.version:04}_{migration.name}.sql"
            (folder / "holdfast" / "store" / store / "migrations" / name).write_text(migration.text)
    return folder


def run_sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement directly on the database, and return its rows. Tables are named as on PostgreSQL: `holdfast.jobs`."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        try:
            return connection.execute(_dialect(statement)).fetchall()
        finally:
            connection.close()
    place = Place.of(url)
    with psycopg.connect(place.server, autocommit=True) as server:
        found = server.execute(statement.replace("holdfast.", f"{place.schema}.").encode())
        return [] if found.description is None else found.fetchall()


def versions_of(url: str) -> list[int]:
    """Return the versions that the schema has been through."""
    table = "holdfast.schema" if url.startswith("sqlite") else "holdfast.schema_version"
    return [version for (version,) in run_sql(url, f"SELECT version FROM {table} ORDER BY version")]


def catalog_of(url: str) -> list[tuple[Any, ...]]:
    """Return every table, column and index of the ledger."""
    if url.startswith("sqlite"):
        return run_sql(url, "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
    schema = Place.of(url).schema
    columns = f"""SELECT table_name::text, column_name::text, data_type::text, column_default::text
        FROM information_schema.columns WHERE table_schema = '{schema}' ORDER BY table_name, ordinal_position"""
    indexes = f"SELECT tablename::text, indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY indexname"
    return run_sql(url, columns) + run_sql(url, indexes)


def _dialect(text: str) -> str:
    return text.replace("holdfast.", "holdfast_")
