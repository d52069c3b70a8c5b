"""Low-water marks: claims skip dead rows, and no live row is hidden for long."""

import time
from typing import Any

import psycopg
import pytest

from holdfast import Ledger
from holdfast.store.postgres.low_water_marks import KEEP_SECONDS, LowWaterMark, LowWaterMarks
from holdfast.store.postgres.session import BEGIN, PostgresSession
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.values import to_timestamp
from tests.integration.test_plans import nodes

PLAIN = ("default", None)
"""The key of the mark for claims from one queue for all kinds."""


def marks_of(ledger: Ledger) -> LowWaterMarks:
    store = ledger._store
    assert isinstance(store, PostgresStore)
    return store._marks


def test_the_server_times_the_scan(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[float] = []
    monkeypatch.setattr(LowWaterMarks, "learn", lambda self, command, begun, *, seconds, last: heard.append(seconds))
    on_postgres.enqueue_many([{"kind": "k"}] * 10)
    on_postgres.claim("w", limit=10)
    assert 0 < heard[0] < 60


def test_a_slow_scan_sets_a_mark_and_a_fast_one_removes_it(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    on_postgres.enqueue_many([{"kind": "k"}] * 3)
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.KEEP_SCANS", 0)
    [first] = on_postgres.claim("w")
    mark, until = marks_of(on_postgres)._marks[PLAIN]
    assert mark.job_id == first.id
    assert until <= time.monotonic() + KEEP_SECONDS
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 60.0)
    marks_of(on_postgres)._marks[PLAIN] = (mark, 0.0)
    assert [job.id for job in on_postgres.claim("w")] == [first.id + 1]
    assert marks_of(on_postgres)._marks == {}


def test_a_claim_that_finds_too_little_after_the_mark_reads_before_it(on_postgres: Ledger) -> None:
    job = on_postgres.enqueue("k", priority=5)
    far = LowWaterMark(0, to_timestamp(job.record.available_at), job.id + 1_000)
    marks_of(on_postgres)._marks[PLAIN] = (far, time.monotonic() + 3_600)
    assert [held.id for held in on_postgres.claim("w", limit=2)] == [job.id]
    assert marks_of(on_postgres)._marks == {}


def test_a_claim_by_kinds_has_its_own_mark(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    on_postgres.enqueue("other")
    first, second = [on_postgres.enqueue("k").id for _ in range(2)]
    assert [job.id for job in on_postgres.claim("w", kinds=["k"])] == [first]
    assert {key: mark.job_id for key, (mark, _) in marks_of(on_postgres)._marks.items()} == {("default", ("k",)): first}
    assert [job.kind for job in on_postgres.claim("w", kinds=["other"])] == ["other"]
    assert [job.id for job in on_postgres.claim("w", kinds=["k"])] == [second]
    assert marks_of(on_postgres)._marks[("default", ("k",))][0].job_id == second


def test_each_queue_of_a_claim_has_its_mark(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    ids = {queue: [on_postgres.enqueue("k", queue=queue).id for _ in range(3)] for queue in ("a", "b")}
    claimed = on_postgres.claim("w", ["a", "b"], limit=4)
    assert [job.id for job in claimed] == [*ids["a"], ids["b"][0]]
    found = {queue: mark.job_id for (queue, _), (mark, _) in marks_of(on_postgres)._marks.items()}
    assert found == {"a": ids["a"][-1], "b": ids["b"][0]}
    late = on_postgres.enqueue("k", queue="a")
    assert [job.id for job in on_postgres.claim("w", ["b", "a"], limit=3)] == [*ids["b"][1:], late.id]


def test_a_queue_that_has_run_empty_keeps_its_mark(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    first = on_postgres.enqueue("k", queue="a")
    rest = on_postgres.enqueue_many([{"kind": "k", "queue": "b"}] * 3)
    assert [job.id for job in on_postgres.claim("w", ["a", "b"], limit=2)] == [first.id, rest[0].id]
    marks = marks_of(on_postgres)._marks
    marks[("a", None)] = (marks[("a", None)][0], 0.0)
    begun = time.monotonic()
    assert [job.id for job in on_postgres.claim("w", ["a", "b"])] == [rest[1].id]
    mark, until = marks[("a", None)]
    assert mark.job_id == first.id
    assert until >= begun + KEEP_SECONDS


def test_the_number_of_marks_is_limited(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.MARKS_MAX", 2)
    for number in range(4):
        on_postgres.enqueue("k", queue=f"q{number}")
        on_postgres.claim("w", [f"q{number}"])
    assert [queue for queue, _ in marks_of(on_postgres)._marks] == ["q2", "q3"]


DEAD = 20_000


def test_with_a_mark_a_worker_claim_skips_dead_rows(
    on_postgres: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages that the server reads are counted while an open transaction prevents vacuum."""
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.SLOW_SECONDS", 0.0)
    # The mark is kept for as long as the test takes.
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.KEEP_SECONDS", 3_600.0)
    monkeypatch.setattr("holdfast.store.postgres.low_water_marks.KEEP_SECONDS_MAX", 3_600.0)
    sent: list[dict[str, Any]] = []
    run = PostgresSession._run

    def noted(session: PostgresSession, name: str, params: Any = None, reader: Any = None) -> Any:
        if name == "claim":
            sent.append(params)
        return run(session, name, params, reader)

    def pages(params: dict[str, Any]) -> int:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(BEGIN)
            text = on_postgres._store._sql["claim"]  # type: ignore[attr-defined]
            row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}".encode(), params).fetchone()
            connection.execute("ROLLBACK")
        assert row is not None
        [scan] = [node for node in nodes(row[0][0]["Plan"]) if node.get("Index Name") == "jobs_ready"]
        assert scan["Actual Rows"] * scan["Actual Loops"] == 1
        return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])

    monkeypatch.setattr(PostgresSession, "_run", noted)
    with psycopg.connect(postgres_url) as pinning:
        pinning.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pinning.execute("SELECT pg_current_xact_id()")
        for count in (DEAD // 2, DEAD // 2, 3):
            on_postgres.enqueue_many([{"kind": "k"}] * count)
        for _ in range(DEAD // 1_000):
            on_postgres.claim("w", limit=1_000, kinds=["k", "holdfast.undo"], keep=False)
        on_postgres.claim("w", kinds=["k", "holdfast.undo"], keep=False)
        assert sent[-1]["marks"] > [0]
        beginning = {"mark_ranks": [LowWaterMark().rank], "mark_times": [LowWaterMark().available_at], "marks": [0]}
        assert pages(sent[-1]) < pages(sent[-1] | beginning) / 10
