"""Claims that wait for jobs."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Ledger
from tests.support.server import Answer, Client, RunningServer, running


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
        _until(lambda: live.server.claims.waiting == 1)
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
        _until(lambda: live.server.claims.waiting == 8)
        real.enqueue_many([{"kind": "k"}] * 3)
        found = [len(one.result(20).data["jobs"]) for one in waiting]
    assert sorted(found) == [0] * 5 + [1] * 3


def test_a_client_that_has_gone_gets_no_job(live: RunningServer, real: Ledger) -> None:
    worker = live.client("worker", "w-1")
    body = b'{"queues":["default"],"wait_s":20}'
    head = f"POST /v1/claims HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {worker.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        connection.sendall(head.encode() + body)
        _until(lambda: live.server.claims.waiting == 1)
    _until(lambda: live.server.claims.waiting == 0)
    job = real.enqueue("k")
    assert [found["id"] for found in _wait(worker).data["jobs"]] == [job.id]
    assert real.get(job.id).attempt == 1


def test_waiting_claims_end_when_the_server_stops(real: Ledger) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running(real) as server:
            waiting = pool.submit(_wait, server.client("worker", "w-1"))
            _until(lambda: server.server.claims.waiting == 1)
        assert waiting.result(20).data == {"jobs": []}


def test_a_worker_may_have_sixteen_waiting_claims(live: RunningServer) -> None:
    worker = live.client("worker", "w-1")
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(_wait, worker, wait_s=4) for _ in range(16)]
        _until(lambda: live.server.claims.waiting == 16)
        refused = _wait(worker)
        assert (refused.status, refused.data["code"], refused.headers["retry-after"]) == (429, "too_many_requests", "1")
        assert [one.result(20).data for one in waiting] == [{"jobs": []}] * 16


def test_a_repeated_claim_gets_the_jobs_that_it_holds(live: RunningServer, real: Ledger) -> None:
    real.enqueue("k")
    worker = live.client("worker", "w-1")
    first, again = (worker.post("/v1/claims", {"queues": ["default"]}, Idempotency_Key="c-1").data["jobs"] for _ in range(2))
    assert first[0]["fence"] == again[0]["fence"]


def _until(is_so: Any, seconds: float = 20.0) -> None:
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline
        pause.wait(0.005)
