"""An everyday beat as it is written: one transaction with the ledger's own statements."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import apsw

from holdfast.quick.typed import Asked, NotPlain, encode
from holdfast.store.statements import named

_HOME = Path(__file__).parents[1] / "store" / "sqlite"
_WAL_PAGES = 256
"""The log is copied into the database this often: nobody else may be there to keep it short, and each process reads all of it."""
_BUSY_MS = 1_000
"""How long to wait for the right to write, and for the database's own lock. The command line waits longer."""
_TRY_SECONDS = 0.002
_TIMES = {"claimed_at": "claimed_at", "claim_expires_at": "lease_expires_at", "last_heartbeat_at": "last_beat_at"}


def recorded(asked: Asked) -> dict[str, Any]:
    """The beat and its kept answer, in one transaction. A connection this short leaves the log as it is when it closes."""
    lock = os.open(f"{asked.path}-lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        with contextlib.closing(apsw.Connection(asked.path, flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(_BUSY_MS)
            connection.pragma("synchronous", "FULL")
            connection.pragma("wal_autocheckpoint", _WAL_PAGES)
            _lock(lock)
            connection.execute("BEGIN IMMEDIATE")
            task = _in_transaction(connection, asked)
            connection.execute("COMMIT")
    finally:
        os.close(lock)
    with contextlib.suppress(OSError), Path(f"{asked.path}-tail").open("r+b") as bell:
        bell.write(b"!")
    return task


def _lock(fd: int) -> None:
    """Whoever is too late here waits its turn with the command line."""
    deadline = time.monotonic() + _BUSY_MS / 1_000
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NotPlain from None
            time.sleep(_TRY_SECONDS)


def _in_transaction(connection: apsw.Connection, asked: Asked) -> dict[str, Any]:
    known = max(int(file.name[:4]) for file in (_HOME / "migrations").glob("*.sql"))
    if connection.execute("SELECT max(version) FROM holdfast_schema").get != known:
        raise NotPlain
    sql = named([_HOME / "sql" / "hot.sql", _HOME / "sql" / "cold.sql"])
    keys = encode([[asked.agent, asked.request_id]])
    guard = _row(connection.execute(sql["guards"], (encode([asked.id]),)))
    if connection.execute(sql["find_requests"], {"keys": keys}).fetchone() is not None:
        raise NotPlain
    status, attempt, holder = guard["status"], guard["attempt"], (guard["owner"], guard["incarnation"])
    now = max(time.time_ns() // 1_000, guard["updated_at"])
    everyday = status in ("claimed", "running") and now <= guard["lease_expires_at"] and "+" not in (guard["token"] or "+")
    if not everyday or holder != (asked.agent, asked.session) or asked.attempt not in (None, attempt):
        raise NotPlain
    change = (asked.id, guard["rev"] + 1, now, now + guard["lease_us"])
    if asked.payload is None:
        connection.execute(sql["beat"], change)
    else:
        connection.execute(sql["heartbeat"], (*change, asked.stage, asked.progress, None))
    event = (*change[:3], f"worker:{asked.agent}#{asked.session}", attempt, status, status, asked.request_id, asked.payload)
    connection.execute(sql["insert_heartbeat"], event)
    task = _task(_row(connection.execute(sql["load"], {"ids": encode([asked.id])})))
    kept = {"actor": asked.agent, "request_id": asked.request_id, "verb": "task_heartbeat", "body_hash": asked.body_hash}
    connection.execute(sql["keep_request"], {**kept, "answer": encode(task).encode(), "now_at": now})
    return task


def _row(found: apsw.Cursor) -> dict[str, Any]:
    """The only row, by the names of its columns."""
    row = found.fetchone()
    if row is None:
        raise NotPlain
    return dict(zip([column[0] for column in found.get_description()], row, strict=True))


def _task(row: dict[str, Any]) -> dict[str, Any]:
    """A task, as agents are shown one."""
    as_is = ("id", "kind", "queue", "status", "phase", "priority", "attempt", "rev")
    return {
        **{name: row[name] for name in as_is},
        "claimed_by": row["owner"],
        "session": row["incarnation"],
        **{name: _moment(row[column]) for name, column in _TIMES.items()},
        **{name: _moment(row[name]) for name in ("started_at", "finished_at", "available_at", "created_at")},
        "stage": row["stage"],
        "progress": row["progress"],
        "cancel_requested": row["phase"] == "aborting",
        "last_owner": row["last_owner"],
        "stall_reason": row["stall_reason"],
    }


def _moment(at: int | None) -> str | None:
    if at is None:
        return None
    seconds, micros = divmod(at, 1_000_000)
    rest = f".{micros:06}" if micros else ""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}{rest}Z"
