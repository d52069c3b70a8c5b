"""The HTTP server: whole cycles in batches of 100 against the library, lone enqueues of many connections, and heartbeats."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec

import holdfast
from bench.cpu import Meter
from bench.places import Host, Place
from bench.report import Heading, Row, compared
from bench.rounds import counted, median, rates, take_turns, timed
from bench.sizes import Sizes
from holdfast import Ledger

HEADING = Heading("The HTTP server against the library in the same process", ours="HTTP", base="library")
BATCH = 100
CONNECTIONS = 64
CYCLE_TARGET = 0.5
LONE_TARGET, LONE_RATE = 0.5, 2_000.0
"""Lone enqueues: this part of the rate of a bare endpoint, or this rate. The row's target is the lower of the two."""
TOKENS = 8
"""A server limits the requests of one token."""
ARGS = {"number": 1}
RESULT = {"done": True}


class HttpClient:
    """One connection with a token."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def close(self) -> None:
        self._connection.close()

    def post(self, path: str, body: Any) -> Any:
        self._connection.request("POST", path, msgspec.json.encode(body), self._headers)
        response = self._connection.getresponse()
        data = response.read()
        assert response.status < 300, data
        return msgspec.json.decode(data)


@contextmanager
def served(place: Place) -> Iterator[tuple[int, int, str]]:
    """Yield the port and the process id of a server of this ledger, and a worker's token."""
    with holdfast.open(place.url) as ledger:
        token = ledger.new_token("worker", "bench").text
    command = [sys.executable, "-m", "holdfast", "serve", "--db", place.url, "--port", "0", "--no-link"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline().strip().rpartition(":")[2]), server.pid, token
        finally:
            server.terminate()


def measure(host: Host, sizes: Sizes) -> list[Row]:
    jobs = max(BATCH, min(20_000, sizes.per_round) // BATCH * BATCH)
    with host.place() as place, served(place) as (port, pid, token), holdfast.open(place.url) as ledger:
        client = HttpClient(port, token)
        cycle_remote(client, BATCH)
        cycle_library(ledger, BATCH)
        over, own = take_turns(
            sizes.rounds,
            lambda _: counted(jobs, Meter([os.getpid(), pid]), lambda: cycle_remote(client, jobs)),
            lambda _: counted(jobs, Meter([os.getpid()]), lambda: cycle_library(ledger, jobs)),
        )
        cycles = compared(f"{host.name}, cycles of {BATCH} jobs", over, own, CYCLE_TARGET, place.events("succeeded"))
        tokens = [ledger.new_token("client", f"bench-{number}").text for number in range(TOKENS)]
        lone = _lone(host, port, pid, tokens, sizes)._replace(events=place.events("enqueued"))
        alone = [timed(sizes.singles, lambda: _enqueue_library(ledger, sizes.singles)) for _ in range(3)]
        library = Row(
            f"{host.name}, lone enqueues, against the library", lone.ours, median(alone), None, place.events("enqueued"), {}
        )
        beats = _beats(host, ledger, client, sizes)._replace(events=place.events("heartbeat"))
    return [cycles, lone, library, beats]


def cycle_remote(client: HttpClient, count: int) -> int:
    done = 0
    for _ in range(count // BATCH):
        client.post("/v1/jobs/batch", {"jobs": [{"kind": "noop", "args": ARGS, "queue": "http"}] * BATCH})
        held = client.post("/v1/claims?return=work", {"queues": ["http"], "limit": BATCH, "start": True})["work"]
        completions = [{"fence": job["fence"], "result": RESULT} for job in held]
        answers = client.post("/v1/completions", {"completions": completions})["answers"]
        done += sum("change" in answer for answer in answers)
    return done


def cycle_library(ledger: Ledger, count: int) -> int:
    done = 0
    for _ in range(count // BATCH):
        ledger.enqueue_many([{"kind": "noop", "args": ARGS, "queue": "own"}] * BATCH)
        held = ledger.claim("bench", ["own"], limit=BATCH, start=True)
        answers = ledger.complete_many([(job.fence, RESULT) for job in held])
        done += sum(not isinstance(answer, holdfast.HoldfastError) for answer in answers)
    return done


def _lone(host: Host, port: int, pid: int, tokens: Sequence[str], sizes: Sizes) -> Row:
    """Lone enqueues of many connections, and in turns with them the same requests to a bare endpoint of the same stack."""
    count = max(1, sizes.singles // CONNECTIONS) * CONNECTIONS
    with bare_endpoint() as (bare_port, bare_pid):
        enqueue_singly(bare_port, tokens, CONNECTIONS)
        ours, bare = take_turns(
            3,
            lambda _: counted(count, Meter([os.getpid(), pid]), lambda: enqueue_singly(port, tokens, count)),
            lambda _: counted(count, Meter([os.getpid(), bare_pid]), lambda: enqueue_singly(bare_port, tokens, count)),
        )
    target = min(LONE_TARGET, LONE_RATE / median(rates(bare)))
    name = f"{host.name}, lone enqueues, {CONNECTIONS} connections, against a bare endpoint"
    return compared(name, ours, bare, target, 0, ("http", "bare"))


@contextmanager
def bare_endpoint() -> Iterator[tuple[int, int]]:
    """Yield the port and the process id of a server without a ledger."""
    with subprocess.Popen([sys.executable, "-m", "bench.bare_server"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline()), server.pid
        finally:
            server.terminate()


def enqueue_singly(port: int, tokens: Sequence[str], count: int) -> int:
    clients = [HttpClient(port, tokens[number % len(tokens)]) for number in range(CONNECTIONS)]

    def some(client: HttpClient) -> None:
        for _ in range(count // CONNECTIONS):
            client.post("/v1/jobs", {"kind": "noop", "args": ARGS, "queue": "lone"})

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(some, clients))
    for client in clients:
        client.close()
    return count


def _enqueue_library(ledger: Ledger, count: int) -> None:
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda _: ledger.enqueue("noop", ARGS, queue="own-lone"), range(count)))


def _beats(host: Host, ledger: Ledger, client: HttpClient, sizes: Sizes) -> Row:
    """Heartbeats in batches of 1,000."""
    ledger.enqueue_many([{"kind": "noop", "queue": "held"}] * 1_000)
    held = client.post("/v1/claims", {"queues": ["held"], "limit": 1_000, "start": True})["jobs"]
    fences = [job["fence"] for job in held]

    def beat(_: int) -> Any:
        return counted(1_000, Meter([os.getpid()]), lambda: len(client.post("/v1/heartbeats", {"fences": fences})["answers"]))

    [found] = take_turns(max(3, sizes.beats), beat)
    return Row(f"{host.name}, heartbeats", median(rates(found)), 10_000.0, 1.0, 0, {"beats": rates(found)})
