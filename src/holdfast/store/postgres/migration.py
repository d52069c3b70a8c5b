"""The schema's version, and the migrations that bring it to the newest."""

import time
from collections.abc import Callable

from psycopg import errors as pg

from holdfast.errors import SchemaTooNew
from holdfast.store.postgres.connections import TimedConnection
from holdfast.store.postgres.session import IDLE_MS, LOCK_MS
from holdfast.store.statements import Migration, migrations

MIGRATE_SECONDS = 600.0
"""How long a statement of a migration may take, and the wait for another process that migrates."""
MIGRATE_LOCK_SECONDS = 30.0
"""How long a migration tries to get the tables that it changes."""
MIGRATE_PAUSE_SECONDS = 0.5
"""Between two tries. While a try waits for a table, every other session waits behind it."""


def known_migrations() -> tuple[Migration, ...]:
    return migrations("holdfast.store.postgres")


def version_of(connection: TimedConnection, schema: str) -> int:
    """The schema's version; 0 where there is none. A newer one than this code knows is refused."""
    there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{schema}.schema_version",)).fetchone()
    if there is None or not there[0]:
        return 0
    row = connection.execute(f"SELECT coalesce(max(version), 0) FROM {schema}.schema_version").fetchone()
    newest, known = int(row[0]) if row else 0, known_migrations()[-1].version
    if newest > known:
        raise SchemaTooNew(f"the database has schema {newest}; this Holdfast knows {known}", found=newest, known=known)
    return newest


def migrate(connection: TimedConnection, schema: str, draw_id: Callable[[], str]) -> None:
    """Try until the tables can be had. While one try waits for a table, every other session waits too, so each try is short."""
    connection.patience = MIGRATE_SECONDS
    deadline = time.monotonic() + MIGRATE_LOCK_SECONDS
    while True:
        try:
            return _migrate_once(connection, schema, draw_id)
        except pg.LockNotAvailable:
            if time.monotonic() > deadline:
                raise
        time.sleep(MIGRATE_PAUSE_SECONDS)


def _migrate_once(connection: TimedConnection, schema: str, draw_id: Callable[[], str]) -> None:
    """One transaction under a lock: of many processes that start at once, one migrates.

    The server ends the transaction of a process that is frozen in the middle, so that its locks do not stop the fleet.
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
            connection.execute(f"INSERT INTO {schema}.schema_version VALUES (%s)", (migration.version,))
        connection.execute(f"INSERT INTO {schema}.meta VALUES ('ledger_id', %s) ON CONFLICT DO NOTHING", (draw_id(),))
