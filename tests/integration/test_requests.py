"""Request ids: one row for each call, and the same answer for each repetition."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast import Fence, Ledger
from tests.support.histories import count_jobs
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
