"""The frozen statements on bare apsw: parameters made beforehand where they can be, no validation, no objects."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from bench.texts import texts
from bench.work import KIND, LEASES, RESULT_BODY, batches, enqueued_body

OWNER, INCARNATION, TOKEN = "raw", "raw-incarnation", "0123456789abcdef0123456789abcdef"
WHO, REQUEST = f"worker:{OWNER}#{INCARNATION}", "0123456789abcdef01234567"
Rows = list[tuple[Any, ...]]
Batch = tuple[Rows, Rows]


class RawSqlite:
    def __init__(self, path: Path) -> None:
        self._sql = texts("frozen/sqlite.sql")
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(10_000)
        for name, value in (
            ("journal_mode", "WAL"),
            ("synchronous", "FULL"),
            ("cache_size", -16384),
            ("wal_autocheckpoint", 4000),
        ):
            self._connection.pragma(name, value)
        assert self._connection.pragma("synchronous") == 2

    def close(self) -> None:
        self._connection.close()

    def prepare_enqueue(self, queue: str, count: int) -> list[Batch]:
        """Rows for the next `count` jobs. No other process may enqueue before they are used."""
        connection = self._connection
        profile = connection.execute("SELECT id FROM holdfast_profiles WHERE kind = ?", (KIND,)).get
        id_ = connection.execute(self._sql["last_job_id"]).get + 1
        now, made = _now(), []
        for size in batches(count):
            ids = range(id_, id_ + size)
            jobs = [(i, queue, KIND, 0, now, now, now, profile, None, False, None, None, None) for i in ids]
            events = [(i, now, "client:raw", None, enqueued_body(queue, i), None) for i in ids]
            made.append((jobs, events))
            id_ += size
        return made

    def enqueue(self, prepared: Sequence[Batch]) -> None:
        connection, sql = self._connection, self._sql
        for jobs, events in prepared:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(sql["last_job_id"]).get  # noqa: B018 - the read is part of the work
            connection.executemany(sql["insert_job"], jobs)
            connection.executemany(sql["insert_enqueued"], events)
            connection.execute("COMMIT")

    def _claim(self, queue: str, limit: int) -> list[int]:
        connection, sql = self._connection, self._sql
        claim = {
            "status": "running",
            "phase": "executing",
            "steps": 2,
            "owner": OWNER,
            "incarnation": INCARNATION,
            "token": TOKEN,
            "now": _now(),
            "queue": queue,
            "kinds": None,
            "limit": limit,
        }
        connection.execute("BEGIN IMMEDIATE")
        rows: Rows = connection.execute(sql["claim"], claim).fetchall()
        claimed = [(row[0], row[3] - 1, row[8], WHO, row[4], REQUEST, row[19]) for row in rows]
        connection.executemany(sql["insert_claimed"], claimed)
        started = [(row[0], row[3], row[8], WHO, row[4], REQUEST) for row in rows]
        connection.executemany(sql["insert_started"], started)
        connection.execute("COMMIT")
        return [row[0] for row in rows]

    def drain(self, queue: str, count: int) -> int:
        """Claim with start, complete; a transaction each."""
        connection, sql, done = self._connection, self._sql, 0
        for size in batches(count):
            ids = self._claim(queue, size)
            connection.execute("BEGIN IMMEDIATE")
            guards: Rows = connection.execute(sql["guards"], (_json(ids),)).fetchall()
            now = _now()
            connection.executemany(sql["complete"], [(row[0], row[2] + 1, now) for row in guards])
            succeeded = [(row[0], row[2] + 1, now, WHO, row[3], REQUEST, RESULT_BODY) for row in guards]
            connection.executemany(sql["insert_succeeded"], succeeded)
            connection.execute("COMMIT")
            done += len(guards)
        return done

    def hold(self, queue: str, count: int) -> list[list[int]]:
        """Leases, in the chunks they are renewed in."""
        return [sorted(id_ for half in batches(size) for id_ in self._claim(queue, half)) for size in batches(count, LEASES)]

    def beat(self, chunks: Sequence[list[int]]) -> int:
        connection, sql, done = self._connection, self._sql, 0
        for ids in chunks:
            connection.execute("BEGIN IMMEDIATE")
            guards: Rows = connection.execute(sql["guards"], (_json(ids),)).fetchall()
            now = _now()
            connection.executemany(sql["beat"], [(row[0], row[2] + 1, now, now + row[10]) for row in guards])
            events = [(row[0], row[2] + 1, now, WHO, row[3], row[1], row[1], None, None) for row in guards]
            connection.executemany(sql["insert_heartbeat"], events)
            connection.execute("COMMIT")
            done += len(guards)
        return done


def _json(ids: Sequence[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _now() -> int:
    return time.time_ns() // 1_000
