"""Many agents at /mcp of one server: they get different jobs, and one token cannot take what others need."""

import http.client
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from holdfast import Ledger
from holdfast.core import limits
from holdfast.server.access import CallerLimits
from tests.mcp.conftest import ACCEPT, INITIALIZE, RESUME, ToolClient
from tests.server.test_mcp import MODES, agent, initialize
from tests.support.server import Answer, Client, RunningServer, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LATEST = "2026-07-28"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def served(ledger: Ledger) -> Iterator[RunningServer]:
    with running(ledger, mcp=True) as server:
        yield server


async def introduced(ask: ToolClient) -> dict[str, Any]:
    """Arguments of each call: the session that the server offers, if the protocol has none."""
    answer = await ask.ask("list_jobs", mine=True)
    return {"session": answer.structured_content["error_context"]["offered"]} if answer.is_error else {}


@pytest.mark.parametrize("mode", MODES)
async def test_clients_that_resume_at_once_get_different_jobs(served: RunningServer, ledger: Ledger, mode: str) -> None:
    jobs = [ledger.enqueue("draft").id for _ in range(20)]
    token, done = served.client("worker", "arm-1").token, list[int]()

    async def work(ask: ToolClient) -> None:
        session = await introduced(ask)
        while (task := (await ask("resume", **session))["task"]) is not None:
            await ask("progress", id=task["id"], progress=1, **session)
            await ask("complete", id=task["id"], **session)
            done.append(task["id"])

    async with (
        agent(served.url, token, mode=mode) as one,
        agent(served.url, token, mode=mode) as two,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(work, one)
        tasks.start_soon(work, two)
    assert sorted(done) == jobs
    assert all(ledger.get(job).attempt == 1 and not ledger.check(job) for job in jobs)


async def test_the_end_of_a_session_releases_its_job(served: RunningServer, ledger: Ledger) -> None:
    mine, other = ledger.enqueue("draft").id, ledger.enqueue("draft").id
    token = served.client("worker", "arm-1").token
    async with agent(served.url, token) as stays:
        await stays("claim_job", id=other)
        async with agent(served.url, token) as goes:
            held = (await goes("claim_job", id=mine))["task"]
            assert (await stays.refused("claim_job", id=mine))["error_code"] == "lease_conflict"
            assert held["session"] != (await stays("get_job", id=other))["task"]["session"]
        wait_until(lambda: ledger.get(mine).status == "queued")
        assert ledger.get(other).status == "running"


def test_sessions_are_limited_for_each_token(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_SESSIONS_OF_ONE_MAX", 2)
    with running(ledger, mcp=True) as served:
        greedy, modest = served.client("worker", "arm-1"), served.client("worker", "arm-2")
        opened = [initialize(greedy).headers["mcp-session-id"] for _ in range(2)]
        refused = initialize(greedy)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.body == b"Too many sessions: at most 2 may be open for this client. End some with DELETE."
        assert initialize(modest).status == 200
        # The sessions that are open continue. Another client can neither use nor end one; the end of one frees its place.
        mine, others = (one.acting(**ACCEPT, Mcp_Session_Id=opened[0]) for one in (greedy, modest))
        assert mine.post("/mcp", RESUME).status == 200
        assert others.post("/mcp", RESUME).status == others.send("DELETE", "/mcp").status == 404
        assert mine.send("DELETE", "/mcp").status == 200
        assert initialize(greedy).status == 200


def test_requests_under_way_are_limited_for_each_token(ledger: Ledger) -> None:
    with running(ledger, mcp=True, caller_limits=CallerLimits(requests_max=1, burst=1_000_000)) as served:
        greedy, modest = served.client("worker", "arm-1"), served.client("worker", "arm-2")
        begun: list[http.client.HTTPConnection] = []

        def is_refused() -> bool:
            """Begin a request, and send another. The begun one is refused itself if the other one comes first."""
            begun.append(begin_request(greedy))
            return list_tools(greedy).status == 429

        wait_until(is_refused)
        assert list_tools(modest).status == 200
        for connection in begun:
            connection.close()
        wait_until(lambda: list_tools(greedy).status == 200)


def list_tools(client: Client) -> Answer:
    """Send a request that needs no session."""
    meta = {"io.modelcontextprotocol/protocolVersion": LATEST, "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    return client.acting(**ACCEPT, Mcp_Protocol_Version=LATEST, Mcp_Method="tools/list").post("/mcp", message)


def begin_request(client: Client) -> http.client.HTTPConnection:
    """Send a request whose last byte never comes."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.putrequest("POST", "/mcp")
    for name, text in {**ACCEPT, "Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}.items():
        connection.putheader(name, text)
    connection.putheader("Content-Length", "2")
    connection.endheaders(b"{")
    return connection


def test_a_message_has_a_limit_of_size(served: RunningServer) -> None:
    worker = served.client("worker", "arm-1").acting(**ACCEPT)
    padding = "x" * limits.MCP_BODY_BYTES_MAX
    assert worker.post("/mcp", {**INITIALIZE, "padding": padding}).status == 413
