"""Health of a PostgreSQL server: its schema, its settings, and transactions that block vacuum, followers or single jobs."""

from collections.abc import Mapping
from typing import Any

from holdfast.core.doctor.model import LockedJob, OpenTransaction, StoreHealth
from holdfast.store.postgres.values import binary_cursor
from holdfast.store.statements import migrations


def vitals(connection: Any, sql: Mapping[str, str]) -> StoreHealth:
    """Return the health of the server. A client cannot read the free space on its disk."""
    rows = binary_cursor(connection)
    [(version, schema, xids, replica, connections, connections_max, *settings)] = rows.execute(sql["vitals"]).fetchall()
    opened = {
        writes: OpenTransaction(session, age_us) for writes, session, age_us in rows.execute(sql["transactions"]).fetchall()
    }
    oldest = max(opened.values(), key=lambda transaction: transaction.age_us, default=None)
    return StoreHealth(
        store="postgresql",
        version=f"PostgreSQL {version}",
        schema_version=schema,
        schema_known=migrations("holdfast.store.postgres")[-1].version,
        settings=dict(zip(("fsync", "full_page_writes", "synchronous_commit"), settings, strict=True)),
        oldest=oldest,
        writer=opened.get(True),
        horizon_xids=xids,
        locked=tuple(LockedJob(*row) for row in rows.execute(sql["locked_jobs"]).fetchall()),
        replica=replica,
        connections=connections,
        connections_max=connections_max,
    )
