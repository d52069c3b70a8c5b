"""MCP in the server: real clients over real HTTP, with the tokens, roles, queues and limits of the server."""

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast import Ledger
from holdfast.server.redact import Redaction
from holdfast.server.throttles import StreamSlots
from tests.mcp.conftest import ACCEPT, INITIALIZE, ToolClient
from tests.support.served_process import serving
from tests.support.server import Answer, Client, RunningServer, running

pytestmark = pytest.mark.anyio

MODES = ["auto", "legacy"]
"""The protocol without sessions, and the one with them."""
READING = {"list_jobs", "get_job", "get_contents", "explain"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def served(ledger: Ledger) -> Iterator[RunningServer]:
    with running(ledger, mcp=True) as server:
        yield server


@asynccontextmanager
async def agent(url: str, token: str | None, *, mode: str = "legacy", **headers: str) -> AsyncIterator[ToolClient]:
    sent = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): text for name, text in headers.items()}}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=60) as http,
        McpClient(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield ToolClient(client)


async def names_of(ask: ToolClient) -> set[str]:
    return {tool.name for tool in (await ask.client.list_tools()).tools}


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_does_a_job_as_the_worker_of_its_token(served: RunningServer, ledger: Ledger, mode: str) -> None:
    job = ledger.enqueue("review", {"page": 7})
    token = served.client("worker", "arm-1").token
    session = {} if mode == "legacy" else {"session": "s1"}
    async with agent(served.url, token, mode=mode) as ask:
        assert READING | {"resume", "claim_job", "heartbeat", "progress", "complete", "enqueue"} <= await names_of(ask)
        task = (await ask("resume", **session))["task"]
        assert (task["id"], task["claimed_by"], task["args"]) == (job.id, "arm-1", {"page": 7})
        await ask("heartbeat", id=job.id, **session)
        await ask("progress", id=job.id, progress=1, checkpoint={"lines": 40}, **session)
        made = (await ask("enqueue", kind="next", **session))["task"]
        assert (await ask("complete", id=job.id, result={"ok": True}, **session))["task"]["status"] == "succeeded"
    assert ledger.result(job, timeout=0) == {"ok": True}
    actors = {event.actor for event in ledger.events()[1:]}
    assert actors == {f"worker:arm-1#{task['session']}"} and ledger.get(made["id"]).kind == "next"


@pytest.mark.parametrize("mode", MODES)
async def test_a_reader_reads_and_may_not_write(served: RunningServer, ledger: Ledger, mode: str) -> None:
    job = ledger.enqueue("review", {"page": 7})
    async with agent(served.url, served.client("reader", "eye").token, mode=mode) as ask:
        assert await names_of(ask) == READING
        assert (await ask("get_job", id=job.id))["task"]["args"] == {"page": 7}
        session = {} if mode == "legacy" else {"session": "s1"}
        writing: dict[str, dict[str, Any]] = {
            "enqueue": {"kind": "k"},
            "resume": {},
            "claim_job": {"id": 1},
            "complete": {"id": 1},
        }
        for tool, arguments in writing.items():
            refused = await ask.refused(tool, **arguments, **session)
            assert (refused["error_code"], refused["error_context"]["verb"]) == ("forbidden", tool)
    assert len(ledger.events()) == 1


async def test_a_client_enqueues_and_may_not_claim(served: RunningServer, ledger: Ledger) -> None:
    async with agent(served.url, served.client("client", "shop").token) as ask:
        assert await names_of(ask) == READING | {"enqueue"}
        made = (await ask("enqueue", kind="k", request_id="1"))["task"]
        assert (await ask("enqueue", kind="k", request_id="1"))["task"]["id"] == made["id"]
        assert (await ask.refused("claim_job", id=made["id"]))["error_code"] == "forbidden"
    assert [event.actor for event in ledger.events()] == ["client:shop"]


async def test_a_token_acts_as_another_worker_only_if_it_may(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("review")
    gateway = served.client("operator", "gateway", act_as=["worker:arm-*"]).token
    async with agent(served.url, gateway, Holdfast_Actor="worker:arm-7") as ask:
        assert (await ask("claim_job", id=job.id))["task"]["claimed_by"] == "arm-7"
    worker = served.client("worker", "arm-1")
    for actor in ("worker:arm-2", "operator:kim"):
        refused = initialize(worker, Holdfast_Actor=actor)
        assert (refused.status, refused.data["code"]) == (403, "forbidden")


@pytest.mark.parametrize("queues", [["mail"], ["ma*"]])
async def test_a_queue_outside_of_the_token_does_not_exist(served: RunningServer, ledger: Ledger, queues: list[str]) -> None:
    hidden, shown = ledger.enqueue("k", queue="crawl"), ledger.enqueue("k", queue="mail")
    ledger.enqueue("k", queue="crawl", priority=9)
    async with agent(served.url, served.client("worker", "arm-1", queues=queues).token) as ask:
        assert [task["id"] for task in (await ask("list_jobs"))["tasks"]] == [shown.id]
        for tool in ("get_job", "explain", "claim_job", "complete", "heartbeat"):
            assert (await ask.refused(tool, id=hidden.id))["error_code"] == "not_found"
        assert (await ask.refused("get_contents", id=hidden.id, part="args"))["error_code"] == "not_found"
        assert (await ask.refused("enqueue", kind="k", queue="crawl"))["error_code"] == "forbidden"
        assert (await ask.refused("resume", queues=["crawl"]))["error_code"] == "forbidden"
        assert (await ask("resume"))["task"]["id"] == shown.id
        await ask("complete", id=shown.id)
        assert (await ask("resume"))["task"] is None
        counts = await ask.client.read_resource("holdfast://counts")
        assert list(json.loads(counts.contents[0].text)["counts"]) == ["mail"]  # type: ignore[union-attr]
        with pytest.raises(Exception, match="there is no job"):
            await ask.client.read_resource(f"holdfast://jobs/{hidden.id}")
    assert ledger.get(hidden.id).status == "queued"


async def test_contents_are_hidden_from_readers(ledger: Ledger) -> None:
    job = ledger.enqueue("pay", {"card": "4111", "sum": 1})
    with running(ledger, mcp=True, redaction=Redaction(["args.card"])) as served:
        async with agent(served.url, served.client("reader", "eye").token) as ask:
            answers = [await ask.ask("get_job", id=job.id), await ask.ask("list_jobs"), await ask.ask("explain", id=job.id)]
            answers.append(await ask.ask("get_contents", id=job.id, part="args"))
            resources = [await ask.client.read_resource(f"holdfast://jobs/{job.id}{path}") for path in ("", "/events")]
        texts = [answer.model_dump_json() for answer in [*answers, *resources]]
        assert not [text for text in texts if "4111" in text]
        assert "[redacted]" in texts[0] and "[redacted]" in texts[3]
        async with agent(served.url, served.client("worker", "arm-1").token) as ask:
            assert (await ask("get_job", id=job.id))["task"]["args"]["card"] == "4111"


def initialize(client: Client, **headers: str) -> Answer:
    return client.acting(**ACCEPT).post("/mcp", INITIALIZE, **headers)


def test_a_request_without_a_valid_token_is_refused(served: RunningServer, ledger: Ledger) -> None:
    revoked = served.client("worker", "gone")
    assert revoked.token is not None
    ledger.revoke_token(revoked.token.split("_")[1])
    page = {"Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
    person = f"holdfast={ledger.new_person_session('kim', 'operator')}"
    for client in (served.anonymous(), Client(served.port, "garbage"), revoked, Client(served.port, None, Cookie=person, **page)):
        answer = initialize(client)
        assert (answer.status, answer.data["code"], answer.headers["www-authenticate"]) == (401, "unauthenticated", "Bearer")


def test_the_rules_of_the_server_hold(served: RunningServer) -> None:
    worker = served.client("worker", "arm-1")
    assert initialize(worker, Host="evil.example").status == 421
    assert initialize(worker, Origin="https://evil.example").status == 403
    answer = initialize(worker, X_Request_Id="r-17")
    assert answer.status == 200
    assert (answer.headers["x-request-id"], answer.headers["x-content-type-options"]) == ("r-17", "nosniff")
    assert answer.headers["cache-control"].startswith("no-") and "holdfast-version" in answer.headers
    assert worker.send("POST", "/mcp/", INITIALIZE).status == 404


def test_a_session_belongs_to_the_token_that_opened_it(served: RunningServer) -> None:
    session = initialize(served.client("worker", "arm-1")).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    other = served.client("worker", "arm-1").acting(Mcp_Session_Id=session, **ACCEPT)
    assert other.post("/mcp", ping).status == 404, "it has the same name"


def test_a_server_without_mcp_says_so(ledger: Ledger) -> None:
    with running(ledger) as served:
        answer = initialize(served.client("worker", "arm-1"))
        assert (answer.status, answer.data["code"]) == (404, "not_found")
        assert "holdfast-ledger[mcp]" in answer.data["action"]


def open_stream(client: Client, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {client.token}", "Accept": "text/event-stream", **headers})
    return connection.getresponse()


def test_streams_count_against_the_limit_of_streams(served: RunningServer) -> None:
    served.server.feed.slots = StreamSlots(of_one=1)
    worker = served.client("worker", "arm-1")
    session = {"Mcp-Session-Id": initialize(worker).headers["mcp-session-id"]}
    with open_stream(worker, "/mcp", **session) as stream:
        assert stream.status == 200 and served.server.feed.slots.total == 1
        for path, more in (("/v1/events/stream", {}), ("/mcp", session)):
            with open_stream(worker, path, **more) as refused:
                assert (refused.status, json.loads(refused.read())["code"]) == (429, "too_many_requests")
        with open_stream(served.client("worker", "arm-2"), "/v1/events/stream") as other:
            assert other.status == 200


def test_a_stop_ends_streams_and_releases_jobs(tmp_path: Path, store_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        job = ledger.enqueue("review")
        token = ledger.new_token("worker", "arm-1").text
        with serving(tmp_path, db=store_url) as server:
            worker = Client(server.port, token)
            session = {"Mcp-Session-Id": initialize(worker).headers["mcp-session-id"]}
            tool = {"name": "claim_job", "arguments": {"id": job.id}}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": tool}
            claimed = worker.acting(**session, **ACCEPT).post("/mcp", call)
            assert claimed.status == 200 and ledger.get(job.id).owner == "arm-1"
            with open_stream(worker, "/mcp", **session) as stream:
                assert stream.status == 200
                assert server.stop() == 0
                stream.read()
        released = ledger.events(job.id)[-1]
        assert (released.type, released.actor.startswith("worker:arm-1#")) == ("requeued", True)
        assert ledger.get(job.id).status == "queued" and ledger.get(job.id).owner is None
        log = (tmp_path / "log").read_text()
        assert '"route":"/mcp"' in log and "Traceback" not in log
        assert token not in log and session["Mcp-Session-Id"] not in log
