"""Request ids: one row for each call, and the same answer for each repetition."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Fence, Ledger
from holdfast.errors import IdempotencyConflict
from holdfast.testing import ManualClock
from tests.support.histories import count_jobs, problems
from tests.support.processes import fleet


def kept(ledger: Ledger) -> int:
    """The number of stored answers."""

    def count(session: Any) -> int:
        schema = getattr(ledger._store, "_schema", None)
        table = "holdfast_requests" if schema is None else f"{schema}.requests"
        if schema is None:
            return int(session._connection.execute(f"SELECT count(*) FROM {table}").get)
        return int(session._cursor.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    return ledger._store.read(count)


def hold(ledger: Ledger, count: int) -> list[Fence]:
    ledger.enqueue_many([{"kind": "work"}] * count)
    return [job.fence for job in ledger.claim("worker", limit=count, start=True)]


def test_a_call_stores_one_answer_and_plain_hot_verbs_none(real: Ledger) -> None:
    real.enqueue_many([{"kind": "work"}] * 500)
    assert kept(real) == 0
    real.enqueue_many([{"kind": "work"}] * 500, request_id="batch")
    assert kept(real) == 1
    jobs = real.claim("worker", limit=500, request_id="claim")
    assert kept(real) == 2
    fences = [job.fence for job in jobs]
    for fence in fences[:5]:
        real.start(fence)
        real.heartbeat(fence)
        real.complete(fence)
    real.heartbeat_many(fences[5:])
    assert kept(real) == 2
    for fence in fences[5:]:
        real.start(fence)
    real.complete_many([(fence, None) for fence in fences[5:]], request_id="all")
    assert kept(real) == 3
    assert real.claim("worker", ["empty"], request_id="nothing") == []
    assert kept(real) == 3


def test_a_repeated_call_is_answered_as_before_and_changes_nothing(real: Ledger) -> None:
    made = real.enqueue_many([{"kind": "work", "args": {"n": n}} for n in range(3)], request_id="make")
    again = real.enqueue_many([{"kind": "work", "args": {"n": n}} for n in range(3)], request_id="make")
    assert [job.id for job in again] == [job.id for job in made]
    assert count_jobs(real) == 3
    with pytest.raises(IdempotencyConflict):
        real.enqueue_many([{"kind": "work"}], request_id="make")

    [job] = real.claim("worker", request_id="take")
    started = real.start(job.fence, request_id="start")
    assert real.start(job.fence, request_id="start") == started
    done = real.complete(job.fence, {"n": 1}, request_id="done")
    assert real.complete(job.fence, {"n": 1}, request_id="done") == done
    with pytest.raises(IdempotencyConflict):
        real.complete(job.fence, {"n": 2}, request_id="done")
    assert [event.type for event in real.events(job.id)] == ["enqueued", "claimed", "started", "succeeded"]

    cancelled = real.cancel(made[1].id, request_id="cancel")
    assert real.cancel(made[1].id, request_id="cancel") == cancelled
    replayed = real.replay(made[1].id, request_id="replay")
    assert real.replay(made[1].id, request_id="replay").id == replayed.id
    assert count_jobs(real) == 4
    assert problems(real) == []


def test_a_repeated_claim_returns_the_jobs_still_held_without_renewing_them(ledger: Ledger, clock: ManualClock) -> None:
    ledger.enqueue_many([{"kind": "work"}] * 4)
    jobs = {job.id: job for job in ledger.claim("worker", limit=3, start=True, request_id="take")}
    kept_job, done, released = jobs.values()
    ledger.complete(done.fence)
    ledger.release(released.fence)
    clock.advance(5)

    [again] = ledger.claim("worker", limit=3, start=True, request_id="take")

    assert (again.id, again.fence) == (kept_job.id, kept_job.fence)
    assert again.claim_expires_at == kept_job.claim_expires_at
    assert again.rev == kept_job.rev
    assert len(ledger.events(kept_job.id)) == 3
    assert ledger.counts() == {"default": {"queued": 2, "running": 1, "succeeded": 1}}


def test_one_request_id_from_many_processes_is_one_claim(store_url: str, real: Ledger) -> None:
    real.enqueue_many([{"kind": "work"}] * 50)
    answers = fleet("workers.same_request", 12, url=store_url, request_id="the one")
    assert answers == [answers[0]] * 12
    assert len(answers[0]) == 5
    assert real.counts() == {"default": {"claimed": 5, "queued": 45}}
    assert kept(real) == 1


def test_one_request_id_from_many_threads_is_one_enqueue(real: Ledger) -> None:
    together = threading.Barrier(24)

    def enqueue(_: int) -> int:
        together.wait(30)
        return real.enqueue("work", request_id="the one").id

    with ThreadPoolExecutor(24) as pool:
        assert len(set(pool.map(enqueue, range(24)))) == 1
    assert count_jobs(real) == 1


def test_a_plain_completion_sent_twice_at_once_counts_once(real: Ledger) -> None:
    [fence] = hold(real, 1)
    together = threading.Barrier(8)

    def complete(_: int) -> int:
        together.wait(30)
        return real.complete(fence, request_id="done").rev

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(complete, range(8))) == {4}
    assert len(real.events(fence.job_id)) == 4
