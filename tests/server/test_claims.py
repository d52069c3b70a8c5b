"""Claims that wait for jobs."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Ledger, Unavailable
from holdfast.server.claims import GROUPS_WOKEN_MAX, ChangeWatcher
from tests.support.server import Answer, Client, RunningServer, running
from tests.support.waiting import wait_until


@pytest.fixture
def live(real: Ledger) -> Iterator[RunningServer]:
    """A server of a ledger on the real clock."""
    with running(real) as server:
        yield server


def _wait(client: Client, **body: Any) -> Answer:
    return client.post("/v1/claims", {"queues": ["default"], "wait_s": 20, **body})


def test_a_waiting_claim_gets_a_job_that_comes_later(live: RunningServer, real: Ledger) -> None:
    worker = live.client("worker", "w-1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_wait, worker)
        wait_until(lambda: live.server.claims.waiting == 1)
        real.enqueue("k")
        [job] = waiting.result(20).data["jobs"]
    assert (job["id"], job["fence"]["worker"]) == (1, "w-1")


def test_a_waiting_claim_gets_a_job_that_becomes_ready(live: RunningServer, real: Ledger) -> None:
    real.enqueue("k", delay=0.3)
    [job] = _wait(live.client("worker", "w-1")).data["jobs"]
    assert job["id"] == 1


def test_one_job_wakes_one_of_many_claims(live: RunningServer, real: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(_wait, live.client("worker", f"w-{number}"), wait_s=3) for number in range(8)]
        wait_until(lambda: live.server.claims.waiting == 8)
        real.enqueue_many([{"kind": "k"}] * 3)
        found = [len(one.result(20).data["jobs"]) for one in waiting]
    assert sorted(found) == [0] * 5 + [1] * 3


def test_of_many_groups_only_those_with_a_ready_job_claim_again(
    live: RunningServer, real: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[str] = []
    claim, claims = real.claim, live.server.claims

    def counted(worker: str, *args: Any, **fields: Any) -> Any:
        claimed.append(worker)
        return claim(worker, *args, **fields)

    def is_quiet() -> bool:
        woken = [one for line in list(claims._waiting.values()) for one in list(line) if one.woken.is_set()]
        return len(claims._waiting) == count and not woken and not claims._writes._under_way and not claims._reads._under_way

    monkeypatch.setattr(real, "claim", counted)
    count = 2 * GROUPS_WOKEN_MAX + 4  # so many still wait when the last job is claimed that not all groups are woken
    clients = [live.client("worker", f"w-{number}") for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(_wait, client, queues=[f"q-{number}"]) for number, client in enumerate(clients)]
        wait_until(lambda: all(is_quiet() for _ in range(3)))
        claimed.clear()
        real.enqueue("k", queue="q-7")
        assert [job["queue"] for job in waiting[7].result(20).data["jobs"]] == ["q-7"]
        real.enqueue_many([{"kind": "k", "queue": f"q-{number}"} for number in range(7)])
        assert [job["queue"] for one in waiting[:7] for job in one.result(20).data["jobs"]] == [f"q-{n}" for n in range(7)]
        live.server.end()
    assert set(claimed) == {f"w-{number}" for number in range(8)}


def test_a_claim_that_fails_passes_its_turn_on(live: RunningServer, real: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, failing = real.claim, threading.Event()

    def fails_once(worker: str, *args: Any, **fields: Any) -> Any:
        if worker == "w-1" and failing.is_set():
            failing.clear()
            raise Unavailable("the store is away", outcome="none")
        return claim(worker, *args, **fields)

    monkeypatch.setattr(real, "claim", fails_once)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_wait, live.client("worker", "w-1"))
        wait_until(lambda: live.server.claims.waiting == 1)
        second = pool.submit(_wait, live.client("worker", "w-2"))
        wait_until(lambda: live.server.claims.waiting == 2)
        failing.set()
        job = real.enqueue("k")
        assert first.result(20).status == 503
        assert [found["id"] for found in second.result(20).data["jobs"]] == [job.id]


def test_a_client_that_has_gone_gets_no_job(live: RunningServer, real: Ledger) -> None:
    worker = live.client("worker", "w-1")
    with _open_claim(live):
        wait_until(lambda: live.server.claims.waiting == 1)
    wait_until(lambda: live.server.claims.waiting == 0)
    job = real.enqueue("k")
    assert [found["id"] for found in _wait(worker).data["jobs"]] == [job.id]
    assert real.get(job.id).attempt == 1


def test_waiting_claims_end_when_the_server_stops(real: Ledger) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running(real) as server:
            waiting = pool.submit(_wait, server.client("worker", "w-1"))
            wait_until(lambda: server.server.claims.waiting == 1)
        assert waiting.result(20).data == {"jobs": []}


def test_a_worker_may_have_sixteen_waiting_claims(live: RunningServer) -> None:
    worker = live.client("worker", "w-1")
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(_wait, worker, wait_s=4) for _ in range(16)]
        wait_until(lambda: live.server.claims.waiting == 16)
        refused = _wait(worker)
        assert (refused.status, refused.data["code"], refused.headers["retry-after"]) == (429, "too_many_requests", "1")
        assert [one.result(20).data for one in waiting] == [{"jobs": []}] * 16


def test_a_worker_asks_only_about_its_queues(live: RunningServer, real: Ledger) -> None:
    real.enqueue("k", queue="mail-1")
    real.enqueue("k", queue="other", delay=60)
    worker = live.client("worker", "w-1", queues=["mail*"])
    assert worker.get("/v1/until-ready?queues=mail-1").status == 200
    refused = worker.get("/v1/until-ready?queues=mail-1&queues=other")
    assert (refused.status, refused.data["code"]) == (403, "forbidden")


def test_a_repeated_claim_gets_the_jobs_that_it_holds(live: RunningServer, real: Ledger) -> None:
    real.enqueue("k")
    worker = live.client("worker", "w-1")
    first, again = (worker.post("/v1/claims", {"queues": ["default"]}, Idempotency_Key="c-1").data["jobs"] for _ in range(2))
    assert first[0]["fence"] == again[0]["fence"]


def _open_claim(live: RunningServer) -> socket.socket:
    """Return a connection on which worker w-1 waits for a job."""
    body = b'{"queues":["default"],"wait_s":20}'
    head = f"POST /v1/claims HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {live.client('worker', 'w-1').token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", live.port))
    connection.sendall(head.encode() + body)
    return connection


def test_a_claim_answers_only_what_a_worker_needs(worker: Client, ledger: Ledger) -> None:
    first = ledger.enqueue("greet", {"name": "Ada"}, trace_id="t-1")
    answer = worker.post("/v1/claims?return=work", {"queues": ["default"], "start": True}, Idempotency_Key="c-1")
    whole = worker.post("/v1/claims", {"queues": ["default"], "start": True}, Idempotency_Key="c-1")
    [work], [job] = answer.data["work"], whole.data["jobs"]
    assert (answer.data.keys(), work["id"], work["args"], work["trace_id"]) == ({"work"}, first.id, {"name": "Ada"}, "t-1")
    assert work == {name: job[name] for name in work}
    assert len(answer.body) * 2 < len(whole.body)
    beat = worker.post(f"/v1/jobs/{first.id}/heartbeat", {"fence": work["fence"], "checkpoint": None})
    assert beat.status == 200
    worker.post(f"/v1/jobs/{first.id}/release", {"fence": work["fence"]})
    [again] = worker.post("/v1/claims?return=work", {"queues": ["default"]}).data["work"]
    assert (again["attempt"], again["checkpoint"], again["has_checkpoint"]) == (2, None, True)


def test_a_change_before_the_first_wait_is_reported(real: Ledger) -> None:
    """A job may be enqueued while the thread that waits for changes starts, or while the store was out of reach."""
    told = threading.Event()

    async def watched() -> bool:
        watcher = ChangeWatcher(real, asyncio.get_running_loop(), told.set)
        real.enqueue("k")
        watcher.start()
        try:
            return await asyncio.to_thread(told.wait, 20)
        finally:
            watcher.close()

    assert asyncio.run(watched())
