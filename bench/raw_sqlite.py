"""The frozen statements on bare apsw: parameters made beforehand where they can be, no validation, no objects."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from bench.texts import texts
from bench.work import KIND, LEASES, RESULT_BODY, batches, enqueued_body

OWNER, INCARNATION, TOKEN = "raw", "raw-incarnation", "0123456789abcdef0123456789abcdef"
WHO, REQUEST = f"worker:{OWNER}#{INCARNATION}", "0123456789abcdef01234567"
Rows = list[tuple[Any, ...]]


class Batch(NamedTuple):
    """The jobs of one transaction, without their positions."""

    jobs: Rows
    ids: str


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
            jobs = [(i, queue, KIND, 0, now, now, profile, None, False, None, None, None, enqueued_body(queue, i)) for i in ids]
            made.append(Batch(jobs, _json(ids)))
            id_ += size
        return made

    def enqueue(self, prepared: Sequence[Batch]) -> None:
        connection, sql = self._connection, self._sql
        for jobs, ids in prepared:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(sql["last_job_id"]).get  # noqa: B018 - the read is part of the work
            pos = self._draw(len(jobs))
            first = (pos, jobs[0][5], None, len(jobs), 1, 0, None, False, "enqueued", None, "queued", "client:raw", None, None)
            connection.execute(sql["insert_batch"], (*first, ids, None, None, None, None))
            connection.executemany(sql["insert_job"], [(*job[:-1], pos, pos, job[-1]) for job in jobs])
            connection.execute("COMMIT")

    def _draw(self, count: int) -> int:
        """Take the next `count` positions and return the first of them."""
        last: int = self._connection.execute(self._sql["last_pos"]).get
        self._connection.execute(self._sql["set_last_pos"], (last + count,))
        return last + 1

    def _claim(self, queue: str, limit: int) -> list[int]:
        connection, sql = self._connection, self._sql
        connection.execute("BEGIN IMMEDIATE")
        pos, now = self._draw(2 * limit), _now()
        claim = {
            "pos": pos,
            "status": "running",
            "phase": "executing",
            "steps": 2,
            "owner": OWNER,
            "incarnation": INCARNATION,
            "token": TOKEN,
            "now": now,
            "queue": queue,
            "kinds": None,
            "limit": limit,
        }
        rows: Rows = connection.execute(sql["claim"], claim).fetchall()
        ids, policy = [row[0] for row in rows], rows[0][19]
        first = (pos, now, None, 2 * len(ids), 2, 1, policy, True, "claimed", "queued", "claimed", WHO, None, REQUEST)
        connection.execute(sql["insert_batch"], (*first, _json(ids), None, None, None, None))
        connection.execute(sql["open_claim"], {"pos": pos, "now": now, "size": len(ids), "policies": _json([policy])})
        connection.execute("COMMIT")
        return ids

    def drain(self, queue: str, count: int) -> int:
        """Claim with start, complete; a transaction each."""
        connection, sql, done = self._connection, self._sql, 0
        for size in batches(count):
            ids = self._claim(queue, size)
            connection.execute("BEGIN IMMEDIATE")
            guards: Rows = connection.execute(sql["guards"], (_json(ids),)).fetchall()
            now, pos = _now(), self._draw(len(guards))
            found = _json([row[0] for row in guards])
            connection.execute(sql["settle"], {"now": now, "pos": pos, "result": RESULT_BODY, "ids": found})
            claim, ended = guards[0][11], len(guards)
            first = (pos, now, claim, ended, 4, 1, None, False, "succeeded", "running", "succeeded", WHO, None, REQUEST)
            connection.execute(sql["insert_batch"], (*first, found, None, None, None, None))
            connection.execute(sql["close_claim"], {"pos": claim, "ended": ended})
            connection.execute("COMMIT")
            done += ended
        return done

    def hold(self, queue: str, count: int) -> list[list[int]]:
        """Leases, in the chunks they are renewed in."""
        return [sorted(id_ for half in batches(size) for id_ in self._claim(queue, half)) for size in batches(count, LEASES)]

    def beat(self, chunks: Sequence[list[int]]) -> int:
        connection, sql, done = self._connection, self._sql, 0
        for ids in chunks:
            connection.execute("BEGIN IMMEDIATE")
            guards: Rows = connection.execute(sql["guards"], (_json(ids),)).fetchall()
            now, pos = _now(), self._draw(len(guards))
            connection.executemany(sql["beat"], [(row[0], row[2] + 1, now, now + row[12], pos) for row in guards])
            claims: dict[int, Rows] = {}
            for row in guards:
                claims.setdefault(row[11], []).append(row)
            for claim, rows in claims.items():
                rev, size, status = rows[0][2] + 1, len(rows), rows[0][1]
                first = (pos, now, claim, size, rev, 1, None, False, "heartbeat", status, status, WHO, None, None)
                held = _json([row[0] for row in rows])
                connection.execute(sql["insert_batch"], (*first, held, None, None, None, None))
                pos += size
            connection.execute("COMMIT")
            done += len(guards)
        return done


def _json(ids: Sequence[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _now() -> int:
    return time.time_ns() // 1_000
