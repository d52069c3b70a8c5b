"""Where the live rows of a queue begin: a mark spares a claim the dead ones, and hides nothing from it for long."""

import time
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.store.postgres.marks import KEEP_SECONDS, Mark, Marks
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.values import moment
from tests.conftest import drop_schema

SCHEMA = "hf_marks"


@pytest.fixture
def on_postgres(postgres_url: str) -> Any:
    with holdfast.open(f"{postgres_url}?schema={SCHEMA}") as ledger:
        yield ledger
    drop_schema(postgres_url, SCHEMA)


def marks_of(ledger: Ledger) -> Marks:
    store = ledger._store
    assert isinstance(store, PostgresStore)
    return store._marks


def test_the_server_times_the_scan(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[float] = []
    monkeypatch.setattr(Marks, "learn", lambda self, command, *, seconds, last, full: heard.append(seconds))
    on_postgres.enqueue_many([{"kind": "k"}] * 10)
    on_postgres.claim("w", limit=10)
    assert 0 < heard[0] < 60


def test_a_slow_scan_leaves_a_mark_and_a_quick_one_takes_it_away(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    on_postgres.enqueue_many([{"kind": "k"}] * 3)
    monkeypatch.setattr("holdfast.store.postgres.marks.SLOW_SECONDS", 0.0)
    [first] = on_postgres.claim("w")
    mark, until = marks_of(on_postgres)._marks["default"]
    assert mark.job_id == first.id
    assert until <= time.monotonic() + KEEP_SECONDS
    monkeypatch.setattr("holdfast.store.postgres.marks.SLOW_SECONDS", 60.0)
    marks_of(on_postgres)._marks["default"] = (mark, 0.0)
    assert [job.id for job in on_postgres.claim("w")] == [first.id + 1]
    assert marks_of(on_postgres)._marks == {}


def test_a_claim_that_finds_too_little_after_the_mark_looks_before_it(on_postgres: Ledger) -> None:
    job = on_postgres.enqueue("k", priority=5)
    far = Mark(0, moment(job.record.available_at), job.id + 1_000)
    marks_of(on_postgres)._marks["default"] = (far, time.monotonic() + 3_600)
    assert [held.id for held in on_postgres.claim("w", limit=2)] == [job.id]
    assert marks_of(on_postgres)._marks == {}


def test_a_claim_by_kind_or_from_several_queues_uses_no_mark(on_postgres: Ledger) -> None:
    job = on_postgres.enqueue("k")
    far = Mark(0, moment(job.record.available_at), job.id + 1_000)
    marks_of(on_postgres)._marks["default"] = (far, time.monotonic() + 3_600)
    assert on_postgres.claim("w", kinds=["other"]) == []
    assert [held.id for held in on_postgres.claim("w", ["other", "default"])] == [job.id]
