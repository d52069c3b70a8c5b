"""Fencing on the side of a resource: a database that workers write to keeps the newest attempt it has seen of each job.

Call `check_fence` inside the transaction that makes the change. It refuses a worker that has lost its job, even if the worker
has not noticed that yet.
"""

import hashlib
import sys
from typing import Any

from holdfast.core.limits import check_name
from holdfast.core.model import Fence
from holdfast.errors import FenceLost, Unavailable, ValidationError
from holdfast.ledger import validate
from holdfast.store.callers import is_awaited, unawaited_connection, unsupported_connection, unwrap, use_connection
from holdfast.store.statements import statements


def check_fence(connection: Any, resource: str, fence: Fence) -> None:
    """Raise FenceLost if `resource` has seen a newer fence of the job. Otherwise record this one.

    `connection` is an `apsw.Connection` or `psycopg.Connection` to the resource's own database, in a transaction, or a connection
    of SQLAlchemy or Django over psycopg. The record is durable when that transaction commits. The table `holdfast_fences` is
    created there if it is missing.
    """
    check_name("resource", resource)
    validate.fence(fence)
    proof = hashlib.sha256(fence.token.encode()).hexdigest()
    use_connection()
    seen = _fence_checker(unwrap(connection))(resource, fence.job_id, fence.attempt, proof)
    if seen is not None:
        raise FenceLost(
            f"{resource} has seen attempt {seen} of job {fence.job_id}; this is attempt {fence.attempt}",
            resource=resource,
            job_id=fence.job_id,
            attempt=fence.attempt,
            seen=seen,
        )


def _fence_checker(connection: Any) -> Any:
    apsw, psycopg = sys.modules.get("apsw"), sys.modules.get("psycopg")
    if apsw is not None and isinstance(connection, apsw.Connection):
        return lambda *row: _check_sqlite(connection, row)
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return lambda *row: _check_postgres(connection, psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row), row)
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        if not is_awaited():
            raise unawaited_connection(connection)
        from holdfast.store.postgres.connections import LoopConnection

        usable = LoopConnection(connection)
        return lambda *row: _check_postgres(usable, usable.cursor(), row)
    wanted = "an apsw.Connection or a psycopg.Connection"
    raise unsupported_connection(
        connection, wanted, "Use a connection of apsw or psycopg 3, or a SQLAlchemy or Django one over psycopg 3."
    )


def _check_sqlite(connection: Any, row: tuple[str, int, int, str]) -> int | None:
    import apsw

    try:
        busy = connection.in_transaction
    except apsw.ConnectionClosedError:
        busy = False
    if not busy:
        raise ValidationError("connection has no open transaction", field="connection")
    sql = statements("holdfast.store.sqlite")
    cursor = connection.cursor()
    cursor.row_trace = None
    try:
        raised = _raise_fence(cursor, sql, row)
    except apsw.BusyError as error:
        raise Unavailable(f"the resource's database is busy: {error}; BEGIN IMMEDIATE and a busy timeout help") from error
    return None if raised else int(cursor.execute(sql["seen_fence"], row[:2]).get)


def _raise_fence(cursor: Any, sql: dict[str, str], row: tuple[str, int, int, str]) -> bool:
    """Write before reading, so that a deferred transaction waits for the write lock. Create the table if it is missing."""
    import apsw

    try:
        return bool(cursor.execute(sql["raise_fence"], row).fetchall())
    except apsw.SQLError:
        cursor.execute(sql["create_fences"])
        return bool(cursor.execute(sql["raise_fence"], row).fetchall())


def _check_postgres(connection: Any, cursor: Any, row: tuple[str, int, int, str]) -> int | None:
    from psycopg.pq import TransactionStatus

    open_states = (TransactionStatus.INTRANS,) if connection.autocommit else (TransactionStatus.INTRANS, TransactionStatus.IDLE)
    if connection.closed or connection.info.transaction_status not in open_states:
        raise ValidationError("connection has no open transaction", field="connection")
    sql = statements("holdfast.store.postgres")
    if cursor.execute(sql["find_fences"]).fetchall() in ([], [(None,)]):
        cursor.execute(sql["lock_fences"])
        cursor.execute(sql["create_fences"])
    if cursor.execute(sql["raise_fence"], row).fetchall():
        return None
    for (attempt,) in cursor.execute(sql["seen_fence"], row[:2]).fetchall():
        return int(attempt)
    return None
