"""The resource's side of fencing: a database that a worker writes to remembers the newest attempt it has seen of each job.

Call `check_fence` inside the transaction that makes the change. A worker that lost its job without knowing it is refused there,
by the resource itself, whatever the worker believes.
"""

import hashlib
import sys
from typing import Any

from holdfast.core.limits import check_name
from holdfast.core.model import Fence
from holdfast.errors import FenceLost, ValidationError
from holdfast.store.statements import statements


def check_fence(connection: Any, resource: str, fence: Fence) -> None:
    """Refuse an older fence than `resource` has seen, and remember this one. Durable when the caller's transaction commits.

    `connection` is an `apsw.Connection` or `psycopg.Connection` to the resource's own database, in a transaction. The table
    `holdfast_fences` is made there when it is missing.
    """
    check_name("resource", resource)
    if not isinstance(fence, Fence):
        raise ValidationError(f"fence must be a Fence, not {type(fence).__name__}", field="fence")
    proof = hashlib.sha256(fence.token.encode()).hexdigest()
    seen = _database(connection)(resource, fence.job_id, fence.attempt, proof)
    if seen is not None:
        raise FenceLost(
            f"{resource} has seen attempt {seen} of job {fence.job_id}; this is attempt {fence.attempt}",
            resource=resource,
            job_id=fence.job_id,
            attempt=fence.attempt,
            seen=seen,
        )


def _database(connection: Any) -> Any:
    apsw, psycopg = sys.modules.get("apsw"), sys.modules.get("psycopg")
    if apsw is not None and isinstance(connection, apsw.Connection):
        return lambda *row: _check_sqlite(connection, row)
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return lambda *row: _check_postgres(connection, row)
    raise ValidationError(
        f"connection must be an apsw.Connection or a psycopg.Connection, not {type(connection).__name__}",
        field="connection",
    )


def _check_sqlite(connection: Any, row: tuple[str, int, int, str]) -> int | None:
    if not connection.in_transaction:
        raise ValidationError("connection has no open transaction", field="connection")
    sql = statements("holdfast.store.sqlite")
    cursor = connection.cursor()
    cursor.row_trace = None
    cursor.execute(sql["create_fences"])
    if cursor.execute(sql["raise_fence"], row).fetchall():
        return None
    return int(cursor.execute(sql["seen_fence"], row[:2]).get)


def _check_postgres(connection: Any, row: tuple[str, int, int, str]) -> int | None:
    from psycopg import Cursor
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

    if connection.autocommit and connection.info.transaction_status != TransactionStatus.INTRANS:
        raise ValidationError("connection has no open transaction", field="connection")
    sql = statements("holdfast.store.postgres")
    with Cursor(connection, row_factory=tuple_row) as cursor:
        found = cursor.execute(sql["find_fences"]).fetchone()
        if found is None or found[0] is None:
            cursor.execute(sql["lock_fences"])
            cursor.execute(sql["create_fences"])
        if cursor.execute(sql["raise_fence"], row).fetchone():
            return None
        seen = cursor.execute(sql["seen_fence"], row[:2]).fetchone()
        return None if seen is None else int(seen[0])
