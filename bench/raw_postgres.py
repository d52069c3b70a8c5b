"""The frozen statements on bare psycopg: parameters made beforehand where they can be, no validation, no objects."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.string import ByteaBinaryLoader

from bench.texts import texts
from bench.work import BATCH, KIND, LEASES, RESULT_BODY, batches, enqueued_body

OWNER, INCARNATION, TOKEN = "raw", "raw-incarnation", "0123456789abcdef0123456789abcdef"
WHO, REQUEST = f"worker:{OWNER}#{INCARNATION}", "0123456789abcdef01234567"
RESULT_LITERAL = '"\\\\x' + RESULT_BODY.hex() + '"'


class RawPostgres:
    def __init__(self, url: str, schema: str) -> None:
        self._sql = {name: text.replace("holdfast.", f"{schema}.") for name, text in texts("frozen/postgres.sql").items()}
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=2)
        self._cursor = self._connection.cursor(binary=True)
        for name in ("timestamptz", "interval"):
            # The bytes as they came: they are not decoded.
            self._cursor.adapters.register_loader(name, ByteaBinaryLoader)
        found = self._connection.execute(f"SELECT id FROM {schema}.profiles WHERE kind = %s", (KIND,)).fetchone()
        self._profile = found and found[0]
        for name in ("fsync", "synchronous_commit"):
            assert self._connection.execute(f"SHOW {name}").fetchone() == ("on",)

    def close(self) -> None:
        self._connection.close()

    def prepare_enqueue(self, queue: str, count: int) -> list[dict[str, Any]]:
        made, number = [], 0
        for size in batches(count):
            bodies = [enqueued_body(queue, i) for i in range(number, number + size)]
            made.append(
                {
                    "now_at": None,
                    "queue": queue,
                    "kind": KIND,
                    "profile": self._profile,
                    "actor": "client:raw",
                    "request": None,
                    "payloads": _array(['"\\\\x' + body.hex() + '"' for body in bodies]),
                }
            )
            number += size
        return made

    def enqueue(self, prepared: Sequence[dict[str, Any]]) -> None:
        for params in prepared:
            self._transact("enqueue_plain", params)

    def _transact(self, name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self._cursor
        cursor.execute("BEGIN")
        cursor.execute(self._sql[name], params)
        rows = cursor.fetchall()
        cursor.execute("COMMIT")
        return rows

    def _claim(self, queue: str, limit: int) -> list[int]:
        claim = {
            "now_at": None,
            "queues": [queue],
            "kinds": None,
            "limit": limit,
            "mark_ranks": [-(2**31)],
            "mark_times": ["0001-01-01T00:00:00Z"],
            "mark_ids": [0],
            "status": "running",
            "phase": "executing",
            "steps": 2,
            "owner": OWNER,
            "incarnation": INCARNATION,
            "token": TOKEN,
            "actor": WHO,
            "request": REQUEST,
        }
        return [row[0] for row in self._transact("claim", claim)]

    def drain(self, queue: str, count: int) -> int:
        """Claim with start, complete; a transaction each."""
        done, rest = 0, _fences(BATCH) | _constant(BATCH)
        for size in batches(count):
            ids = self._claim(queue, size)
            if len(ids) != BATCH:
                rest = _fences(len(ids)) | _constant(len(ids))
            done += len(self._transact("complete", {"ids": _ids(ids)} | rest))
        return done

    def hold(self, queue: str, count: int) -> list[list[int]]:
        """Leases, in the chunks they are renewed in."""
        return [sorted(id_ for half in batches(size) for id_ in self._claim(queue, half)) for size in batches(count, LEASES)]

    def beat(self, chunks: Sequence[list[int]]) -> int:
        prepared = [{"ids": _ids(ids)} | _fences(len(ids)) for ids in chunks]
        return sum(len(self._transact("beat", params)) for params in prepared)


def _ids(ids: Sequence[int]) -> str:
    return _array(list(map(str, sorted(ids))))


def _fences(count: int) -> dict[str, Any]:
    return {"now_at": None, "attempts": _array(["1"] * count), "tokens": _array([TOKEN] * count)}


def _constant(count: int) -> dict[str, Any]:
    return {
        "revs": _array(["NULL"] * count),
        "requests": _array([REQUEST] * count),
        "payloads": _array([RESULT_LITERAL] * count),
    }


def _array(literals: Sequence[str]) -> str:
    return "{" + ",".join(literals) + "}"
