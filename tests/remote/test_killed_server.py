"""A server that is killed under load: clients settle every unknown outcome, and nothing is lost or doubled."""

import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import holdfast
from holdfast import Ledger, Unavailable
from tests.support.served_process import serving

T = TypeVar("T")
CLIENTS, JOBS, KILLS = 6, 40, 3


def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("admin", "root", act_as=["*"]).text
        acknowledged = threading.Semaphore(0)
        with ThreadPoolExecutor(CLIENTS) as pool:
            with serving(tmp_path, port=port) as server:
                clients = [pool.submit(_work, server.url, token, number, acknowledged) for number in range(CLIENTS)]
                _wait_for(acknowledged, CLIENTS * 4)
                server.process.kill()
            for _ in range(KILLS - 1):
                with serving(tmp_path, port=port) as server:
                    _wait_for(acknowledged, CLIENTS * 4)
                    server.process.kill()
            with serving(tmp_path, port=port):
                results = [client.result(120) for client in clients]
        jobs = ledger.list(limit=1_000)
        assert Counter(job.args["name"] for job in jobs) == {f"{one}-{n}": 1 for one in range(CLIENTS) for n in range(JOBS)}
        assert {job.id for job in jobs} == {id_ for result in results for id_ in result}
        assert {job.status for job in jobs} == {"succeeded"}
        assert all(len(ledger.events(job.id, types=["succeeded"])) == 1 and not ledger.check(job.id) for job in jobs)


def _wait_for(acknowledged: threading.Semaphore, count: int) -> None:
    for _ in range(count):
        assert acknowledged.acquire(timeout=60)


def _work(url: str, token: str, number: int, acknowledged: threading.Semaphore) -> list[int]:
    """Enqueue and complete jobs. Each call is repeated with its request id until it has an answer."""
    made = []
    with _open(url, token) as ledger:
        for n in range(JOBS):
            name = f"{number}-{n}"
            job = _settled(partial(ledger.enqueue, "k", {"name": name}, queue=name, request_id=name))
            [held] = _settled(partial(ledger.claim, "w", [name], start=True, request_id=f"claim {name}"))
            _settled(partial(ledger.complete, held.fence, request_id=f"done {name}"))
            made.append(job.id)
            acknowledged.release()
    return made


def _open(url: str, token: str) -> Ledger:
    return _settled(partial(holdfast.open, url, token=token))


def _settled(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except Unavailable as error:
            if not error.retryable:
                raise
