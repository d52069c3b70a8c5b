"""Several servers on one PostgreSQL: they share nothing but the store, and one takes over when another is killed."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import psycopg
import pytest

import holdfast
from tests.support.receiver import SECRET, Receiver
from tests.support.served_process import SECONDS, Serving, serving
from tests.support.server import Answer, Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
TAKEOVER_SECONDS = 90.0
"""A duty is free 30 s after its holder was killed."""
JOBS = 60


@contextmanager
def two_servers(folder: Path, url: str, settings: str = "") -> Iterator[tuple[Serving, Serving]]:
    """Run two servers of one ledger. The second one starts when the first has its duties."""
    with ExitStack() as stack:
        servers: list[Serving] = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            (folder / name / "holdfast.toml").write_text(settings)
            (folder / name / "hooks.secret").write_text(SECRET)
            (folder / name / "hooks.secret").chmod(0o600)
            server = stack.enter_context(serving(folder / name, db=url))
            expected = "standby" if servers else "active"
            wait_until(partial(_has_history, server, expected))
            servers.append(server)
        yield servers[0], servers[1]


def _has_history(server: Serving, state: str) -> bool:
    return services(server)["history"] == state


def services(server: Serving) -> dict[str, str]:
    found: dict[str, str] = Client(server.port).get("/readyz").data["services"]
    return found


@pytest.fixture
def admin_token(new_schema: str) -> str:
    with holdfast.open(new_schema) as ledger:
        return ledger.new_token("admin", "root", act_as=["*"]).text


def test_tokens_and_sessions_of_one_server_are_good_at_the_other(tmp_path: Path, new_schema: str, admin_token: str) -> None:
    with two_servers(tmp_path, new_schema) as (one, two):
        made = Client(one.port, admin_token).post("/v1/tokens", {"role": "operator", "name": "kim"}).data
        kim = Client(two.port, made["text"])
        assert kim.get("/v1/me").data["name"] == "kim"
        page = {"Origin": one.url, "Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
        begun = Client(one.port).post("/v1/session", {"token": made["text"]}, **page)
        browser = Client(two.port, None, Cookie=begun.headers["set-cookie"].partition(";")[0])
        assert browser.get("/v1/me").data["name"] == "kim"

        assert Client(one.port, admin_token).send("DELETE", f"/v1/tokens/{made['token']['id']}").status == 200
        assert Client(one.port, made["text"]).get("/v1/me").status == 401
        wait_until(lambda: kim.get("/v1/me").status == 401)
        wait_until(lambda: browser.get("/v1/me").status == 401)


def test_what_one_server_enqueues_reaches_streams_and_claims_of_the_other(
    tmp_path: Path, new_schema: str, admin_token: str
) -> None:
    with two_servers(tmp_path, new_schema) as (one, two):
        here, there = Client(one.port, admin_token), Client(two.port, admin_token)
        followed: Queue[dict[str, Any]] = Queue()
        following = threading.Thread(target=follow, args=(two.port, admin_token, followed), daemon=True)
        following.start()
        assert followed.get(timeout=SECONDS)["ledger_id"]

        answers: Queue[Answer] = Queue()
        body = {"queues": ["mail"], "start": True, "wait_s": 25}
        worker = there.acting(Holdfast_Actor="worker:w-1#boot")
        claiming = threading.Thread(target=lambda: answers.put(worker.post("/v1/claims", body)), daemon=True)
        claiming.start()
        wait_until(lambda: b"holdfast_http_claims_waiting 1.0" in there.get("/metrics").body)

        job = here.post("/v1/jobs", {"kind": "greet", "queue": "mail"}).data["job"]
        [claimed] = answers.get(timeout=SECONDS).data["jobs"]
        assert claimed["id"] == job["id"]
        event = followed.get(timeout=SECONDS)
        assert (event["type"], event["job_id"]) == ("enqueued", job["id"])


def follow(port: int, token: str, found: "Queue[dict[str, Any]]") -> None:
    """Put the data of every message of a stream into a queue."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", "/v1/events/stream", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data: "):
            found.put(json.loads(line.removeprefix(b"data: ")))


class FleetClient:
    """Sends each request to the first server that answers, always with the same key. A server that is cut off is left."""

    def __init__(self, servers: list[Serving], token: str, actor: str) -> None:
        self._clients = [Client(server.port, token, Holdfast_Actor=actor) for server in servers]

    def post(self, path: str, key: str, body: dict[str, Any]) -> Any:
        for _ in range(200):
            client = self._clients[0]
            try:
                answer = client.post(path, body, Idempotency_Key=key)
            except (OSError, http.client.HTTPException):
                self._clients = [*self._clients[1:], client]
                continue
            if answer.status != 503:
                assert answer.status in (200, 201), answer.body
                return answer.data
        raise AssertionError("no server answers")


def end_duties(url: str) -> None:
    """Let the duties of a killed server end now: they would end after 30 s. A server that is alive takes its own again."""
    address, _, schema = url.partition("?schema=")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.duties SET expires_at = now()".encode())


@pytest.mark.parametrize("shortened", [True, pytest.param(False, marks=pytest.mark.torture)], ids=["shortened", "whole time"])
def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path, new_schema: str, admin_token: str, shortened: bool) -> None:
    sink = '[[server.sinks]]\nname = "hooks"\nsecret_file = "hooks.secret"\nallow_private = true\ntypes = ["succeeded"]\n'
    half = threading.Event()
    done: Counter[int] = Counter()
    lock = threading.Lock()

    def produce(servers: list[Serving], first: int) -> None:
        client = FleetClient(servers, admin_token, "operator:maker")
        for number in range(first, JOBS, 2):
            client.post("/v1/jobs", f"make-{number}", {"kind": "count", "args": {"number": number}})

    def work(servers: list[Serving], name: str) -> None:
        client, claims = FleetClient(servers, admin_token, f"worker:{name}#boot"), 0
        while sum(done.values()) < JOBS:
            claims += 1
            body = {"queues": ["default"], "start": True, "limit": 5, "wait_s": 1}
            for job in client.post("/v1/claims", f"{name}-{claims}", body)["jobs"]:
                client.post(f"/v1/jobs/{job['id']}/complete", f"done-{job['id']}", {"fence": job["fence"]})
                with lock:
                    done[job["args"]["number"]] += 1
                    if sum(done.values()) >= JOBS // 2:
                        half.set()

    with Receiver() as receiver, holdfast.open(new_schema) as ledger:
        settings = f'{sink}url = "{receiver.url}"\n'
        with two_servers(tmp_path, new_schema, settings) as (one, two):
            orders = [[one, two], [two, one]]
            threads = [threading.Thread(target=produce, args=(orders[n], n), daemon=True) for n in range(2)]
            threads += [threading.Thread(target=work, args=(orders[n % 2], f"w-{n}"), daemon=True) for n in range(4)]
            for thread in threads:
                thread.start()
            assert half.wait(SECONDS * 2)
            one.process.send_signal(signal.SIGKILL)
            one.process.wait(SECONDS)
            if shortened:
                end_duties(new_schema)
            for thread in threads:
                thread.join(SECONDS * 2)
                assert not thread.is_alive()
            assert done == Counter(range(JOBS)), "every job was done once"
            wait_until(lambda: services(two)["history"] == "active", seconds=TAKEOVER_SECONDS)
            wait_until(lambda: len(set(receiver.keys)) == JOBS, seconds=TAKEOVER_SECONDS)
            wait_until(lambda: {row.status: row.n for row in ledger.job_totals().rows} == {"succeeded": JOBS})
            assert two.stop() == 0
        jobs = list(ledger.list(limit=1_000))
        assert sorted(job.args["number"] for job in jobs) == list(range(JOBS))
        assert [job.id for job in jobs if ledger.check(job.id)] == []


def test_another_server_sweeps_when_the_sweeper_is_killed(tmp_path: Path, new_schema: str, admin_token: str) -> None:
    policy: Any = {"lease_ttl": 5, "heartbeat_interval": 5, "missed_beats_max": 1, "backoff_base": 0}
    with two_servers(tmp_path, new_schema) as (one, two), holdfast.open(new_schema) as ledger:
        job = ledger.enqueue("k", policy=policy)
        ledger.claim("w-1", start=True)
        wait_until(lambda: "active" in (services(one)["sweep"], services(two)["sweep"]))
        sweeping, other = (one, two) if services(one)["sweep"] == "active" else (two, one)
        sweeping.process.send_signal(signal.SIGKILL)
        found = next(event for event in ledger.follow(ledger.position(), timeout=SECONDS) if event.job_id == job.id)
        assert found.type in ("stalled", "requeued")
        assert other.stop() == 0


def test_processes_of_one_server_share_a_port_and_are_started_again(tmp_path: Path, new_schema: str, admin_token: str) -> None:
    with serving(tmp_path, "--processes", "2", db=new_schema) as server:
        admin = Client(server.port, admin_token)

        def incarnations(count: int, but: frozenset[str] = frozenset()) -> set[str]:
            """Return who answers, when that many processes have answered that are not among `but`."""
            seen: set[str] = set()

            def answered() -> bool:
                seen.add(admin.get("/v1/ledger").data["incarnation"])
                return len(seen - but) == count

            wait_until(answered)
            return seen - but

        before = incarnations(2)
        pids = [line["pid"] for line in log_lines(tmp_path) if line["message"] == "worker started"]
        assert len(set(pids)) == 2
        os.kill(pids[0], signal.SIGKILL)
        after = incarnations(1, frozenset(before))
        assert admin.post("/v1/jobs", {"kind": "k"}).status == 201
        assert after and server.stop() == 0
    assert [line["message"] for line in log_lines(tmp_path) if line["level"] == "error"] == []


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_several_processes_on_a_file_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "serve", "--db", "sqlite:///ledger.db", "--processes", "2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ended.returncode, "need PostgreSQL" in ended.stderr) == (2, True)
