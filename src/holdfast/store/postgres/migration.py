"""The version of the schema, and its migration to the newest one."""

import time
from collections.abc import Callable

from psycopg import errors as pg

from holdfast.errors import SchemaTooNew
from holdfast.store.postgres.connections import LOCK_MS, TimedConnection
from holdfast.store.postgres.session import IDLE_MS
from holdfast.store.statements import Migration, migrations

MIGRATE_SECONDS = 600.0
"""How long a statement of a migration, or the wait for another migrating process, may take."""
MIGRATE_LOCK_SECONDS = 30.0
"""How long a migration tries to lock the tables that it changes."""
MIGRATE_PAUSE_SECONDS = 0.5
"""The pause between two tries. While a try waits for a table lock, every other session waits behind it."""


def known_migrations() -> tuple[Migration, ...]:
    return migrations("holdfast.store.postgres")


def version_of(connection: TimedConnection, schema: str) -> int:
    """Return the schema's version, or 0 without a schema. Raise SchemaTooNew if this version of Holdfast is too old for it."""
    [(exists,)] = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{schema}.schema_version",)).fetchall()
    if not exists:
        return 0
    [(newest,)] = connection.execute(f"SELECT coalesce(max(version), 0) FROM {schema}.schema_version").fetchall()
    known = known_migrations()[-1].version
    if newest > known:
        raise SchemaTooNew(
            f"the database has schema {newest}; this version of Holdfast supports {known}", found=newest, known=known
        )
    return int(newest)


def migrate(connection: TimedConnection, schema: str, draw_id: Callable[[], str]) -> None:
    """Migrate, and retry while tables are locked. Each try waits only briefly, because other sessions wait behind it."""
    connection.statement_timeout = MIGRATE_SECONDS
    deadline = time.monotonic() + MIGRATE_LOCK_SECONDS
    while True:
        try:
            return _migrate_once(connection, schema, draw_id)
        except pg.LockNotAvailable:
            if time.monotonic() > deadline:
                raise
        time.sleep(MIGRATE_PAUSE_SECONDS)


def _migrate_once(connection: TimedConnection, schema: str, draw_id: Callable[[], str]) -> None:
    """Migrate in one transaction under a lock. If many processes start at once, one of them migrates.

    If the process freezes in the middle, the server ends the transaction, so that its locks do not block the other workers.
    """
    with connection.transaction():
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_MS}")
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"holdfast:{schema}",))
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {schema}.schema_version (version integer PRIMARY KEY)")
        newest = version_of(connection, schema)
        for migration in [one for one in known_migrations() if one.version > newest]:
            connection.execute(migration.text.replace("holdfast.", f"{schema}."))
            connection.execute(f"INSERT INTO {schema}.schema_version (version) VALUES (%s)", (migration.version,))
        connection.execute(
            f"INSERT INTO {schema}.meta (name, value) VALUES ('ledger_id', %s) ON CONFLICT DO NOTHING", (draw_id(),)
        )
