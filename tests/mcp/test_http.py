"""`holdfast mcp --http`: many clients of one server, and requests that are refused."""

import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGTERM
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.datastructures import Headers

import holdfast
from holdfast.cli import main
from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.mcp.access import REFUSALS_S, RefusedTokenLog
from tests.mcp.conftest import ACCEPT, ENDS, TOKEN, HttpClient, Serve, Served, ToolClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

BEARER = {"Authorization": f"Bearer {TOKEN}"}
MODES = ["auto", "legacy"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Ledger]]:
    """One server with a token, for all tests of this module."""
    folder = tmp_path_factory.mktemp("http")
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN + "\n")
    url = f"sqlite:///{folder}/holdfast.db"
    with holdfast.open(url) as ledger:
        server = Served(url, "--http", "127.0.0.1:0", "--token-file", str(token), "--agent", "ada")
        yield server, ledger
        server.signal(SIGTERM)
        code, out, err = server.end()
        assert (code, out, "Traceback" in err) == (0, "", False), err


@asynccontextmanager
async def over_http(url: str, *, mode: str = "auto") -> AsyncIterator[ToolClient]:
    async with (
        httpx2.AsyncClient(headers=BEARER, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield ToolClient(client)


async def introduced(ask: ToolClient) -> dict[str, Any]:
    """Arguments of each call: a session, if the transport has none."""
    answer = await ask.ask("list_jobs", mine=True)
    return {"session": answer.structured_content["error_context"]["offered"]} if answer.is_error else {}


@pytest.mark.parametrize("mode", MODES)
async def test_clients_that_resume_at_once_get_different_jobs(place: tuple[Served, Ledger], mode: str) -> None:
    server, ledger = place
    queue = f"share-{mode}"
    jobs = [ledger.enqueue("draft", queue=queue).id for _ in range(20)]
    done: list[int] = []

    async def work(ask: ToolClient) -> None:
        session = await introduced(ask)
        while (task := (await ask("resume", queues=[queue], **session))["task"]) is not None:
            await ask("progress", id=task["id"], progress=1, **session)
            await ask("complete", id=task["id"], **session)
            done.append(task["id"])

    async with (
        over_http(server.url, mode=mode) as one,
        over_http(server.url, mode=mode) as two,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(work, one)
        tasks.start_soon(work, two)
    assert sorted(done) == jobs
    assert all(ledger.get(job).attempt == 1 and not ledger.check(job) for job in jobs)


@pytest.mark.parametrize("mode", MODES)
async def test_a_completion_that_is_sent_twice_counts_once(place: tuple[Served, Ledger], mode: str) -> None:
    server, ledger = place
    jobs = [ledger.enqueue("draft", queue=f"twice-{mode}").id for _ in range(3)]
    async with over_http(server.url, mode=mode) as ask:
        session = await introduced(ask)
        for job, (tool, more) in zip(jobs, ENDS.items(), strict=True):
            await ask("claim_job", id=job, **session)
            first = await ask(tool, id=job, request_id=tool, **more, **session)
            again = await ask(tool, id=job, request_id=tool, **more, **session)
            assert again["task"] == {**first["task"], "replayed": True}


async def test_the_end_of_a_session_releases_its_job(place: tuple[Served, Ledger]) -> None:
    server, ledger = place
    mine, other = ledger.enqueue("draft", queue="end").id, ledger.enqueue("draft", queue="end").id
    async with over_http(server.url, mode="legacy") as stays:
        await stays("claim_job", id=other)
        async with over_http(server.url, mode="legacy") as goes:
            held = (await goes("claim_job", id=mine))["task"]
            assert (await stays.refused("claim_job", id=mine))["error_code"] == "lease_conflict"
            assert held["session"] != (await stays("get_job", id=other))["task"]["session"]
        wait_until(lambda: ledger.get(mine).status == "queued")
        assert ledger.get(other).status == "running"


def test_requests_without_a_token_or_for_another_name_are_refused(place: tuple[Served, Ledger]) -> None:
    server, _ = place
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    def status(**headers: str) -> int:
        return httpx2.post(server.url, json=body, headers={**ACCEPT, **headers}).status_code

    assert status() == 401
    assert status(Authorization=f"Bearer {TOKEN}x") == 401
    assert status(Authorization=f"Basic {TOKEN}") == 401
    assert status(Authorization=f"bearer {TOKEN}") != 401
    assert status(**BEARER, Host="evil.example") == 421
    assert status(**BEARER, Origin="http://evil.example") == 403
    large = httpx2.post(server.url, content=b"x" * (limits.MCP_BODY_BYTES_MAX + 1), headers={**ACCEPT, **BEARER})
    assert large.status_code == 413
    assert httpx2.get(server.url.replace("/mcp", "/other"), headers=BEARER).status_code == 404


def test_refused_tokens_are_logged_a_limited_number_of_times_and_not_shown(serve: Serve, sqlite_url: str) -> None:
    server = serve(sqlite_url, "--http", "127.0.0.1:0", HOLDFAST_MCP_TOKEN=TOKEN)
    guesses = [None, f"Basic {TOKEN}", *(f"Bearer a-wrong-guess-{number}" for number in range(limits.MCP_REFUSALS_LOGGED_MAX))]
    for guess in guesses:
        headers = ACCEPT if guess is None else {**ACCEPT, "Authorization": guess}
        assert httpx2.post(server.url, json={}, headers=headers).status_code == 401
    server.signal(SIGTERM)
    said = server.end()[2]
    lines = [json.loads(line) for line in said.splitlines()]
    refused = [line for line in lines if line["message"] == "refused a token"]
    assert len(refused) == limits.MCP_REFUSALS_LOGGED_MAX
    assert [line["reason"] for line in refused[:3]] == ["no Authorization header", "not a Bearer token", "unknown token"]
    assert {(line["peer"], line["level"]) for line in refused} == {("127.0.0.1", "WARNING")}
    assert TOKEN not in said and "a-wrong-guess" not in said


def test_refused_tokens_that_were_not_logged_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = RefusedTokenLog(lambda: now)
    scope = {"type": "http", "client": ("10.0.0.7", 4000)}
    for _ in range(limits.MCP_REFUSALS_LOGGED_MAX + 3):
        refusals.note(scope, Headers({}))
    now = REFUSALS_S
    refusals.note(scope, Headers({}))
    assert [vars(record)["unlogged"] for record in caplog.records] == [0] * limits.MCP_REFUSALS_LOGGED_MAX + [3]


async def test_a_signal_releases_all_jobs_on_both_stores(store_url: str, serve: Serve) -> None:
    with holdfast.open(store_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(store_url, "--http", "127.0.0.1:0")
        async with Client(server.url) as client:
            ask = ToolClient(client)
            brief = await ask("resume", **await introduced(ask))
            assert (brief["task"]["id"], brief["task"]["claimed_by"]) == (job, "mcp")
            server.signal(SIGTERM)
            assert server.end()[0] == 0
        assert ledger.get(job).status == "queued"


def test_a_client_that_reconnects_continues(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(sqlite_url, "--http", "127.0.0.1:0", "--idle-limit", "1s")
        client = HttpClient(server.url)
        client.call("claim_job", id=job, ttl_s=1)
        server.logged("session is idle")

        def is_over() -> bool:
            expires_at = ledger.get(job).claim_expires_at
            return expires_at is not None and expires_at < ledger.now()

        wait_until(is_over)
        assert client.call("heartbeat", id=job)["structuredContent"]["task"]["attempt"] == 1
        assert client.call("complete", id=job)["structuredContent"]["task"]["status"] == "succeeded"


def test_open_streams_end_in_order(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(sqlite_url, "--http", "127.0.0.1:0")
        client = HttpClient(server.url)
        client.call("claim_job", id=job)
        with httpx2.stream("GET", server.url, headers=client.headers, timeout=60) as stream:
            assert stream.status_code == 200
            server.signal(SIGTERM)
            assert [chunk for chunk in stream.iter_bytes() if not chunk.startswith(b":")] == []
        code, _, err = server.end()
        assert (code, [json.loads(line)["message"] for line in err.splitlines()]) == (0, ["ending", "handed back"])
        assert ledger.get(job).status == "queued"


def test_a_port_in_use_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], restored_logs: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit) as ended:
            main(["mcp", "--http", place, "--db", f"sqlite:///{tmp_path}/holdfast.db", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (ended.value.code, found["error_code"]) == (1, "unavailable")
    assert place in found["error"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "0.0.0.0:0"], "needs --allow-remote and a token"),
        (["--http", "0.0.0.0:0", "--allow-remote"], "needs --allow-remote and a token"),
        (["--http", "0.0.0.0:0", "--token-file", "token"], "needs --allow-remote and a token"),
        (["--http", "127.0.0.1:0", "--token-file", "open"], "others can read open"),
        (["--http", "127.0.0.1:0", "--token-file", "short"], "is not one of 16 or more"),
        (["--http", "127.0.0.1:0", "--token-file", "none"], "cannot be read"),
        (["--http", "127.0.0.1:0", "--session", "night"], "--http serves many"),
        (["--http", "8765"], "is not HOST:PORT"),
        (["--token-file", "token"], "are for --http"),
        (["--idle-limit", "0s"], "--idle-limit is from 1s to 24h"),
    ],
)
def test_wrong_arguments_are_refused(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    for name, token, mode in (("token", TOKEN, 0o600), ("open", TOKEN, 0o644), ("short", "abc", 0o600)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(mode)
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "holdfast.db").exists()
