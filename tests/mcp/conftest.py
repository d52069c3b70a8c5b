"""The MCP server and its official client: in one process, or as real processes."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from holdfast.ledger import Job, Ledger
from holdfast.mcp.server import CallerResolver, build_server
from holdfast.mcp.sessions import ClientSessions
from tests.support import forked
from tests.support.processes import ROOT
from tests.support.stores import leave_to_torture

ENDS: dict[str, dict[str, Any]] = {"complete": {"result": 1}, "fail": {"error": "no route"}, "release": {}}
"""The tools that end a job, and their other arguments."""
ACCEPT = {"Accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "Claude Code!", "version": "1"}},
}
ONE_STORE = {"test_answer_texts.py", "test_sessions.py", "test_tools.py"}
RESUME = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "resume", "arguments": {"ttl_s": 1}}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What tools answer does not depend on the store."""
    leave_to_torture(items, lambda item: item.path.parent == Path(__file__).parent and item.path.name in ONE_STORE)


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class ToolClient:
    """A client that returns the answers of its tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> CallToolResult:
        found = await self.client.call_tool(tool, arguments)
        assert isinstance(found, CallToolResult)
        return found

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its answer. A refusal is an error of the test."""
        answer = await self.ask(tool, **arguments)
        assert not answer.is_error, answer.content
        return answer.structured_content

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.ask(tool, **arguments)
        assert answer.is_error, answer.structured_content
        found: dict[str, Any] = answer.structured_content
        assert found.keys() == {"error", "error_code", "error_context", "suggested_action"}
        assert found["suggested_action"] in text_of(answer)
        return found


def text_of(answer: CallToolResult) -> str:
    [block] = answer.content
    assert block.type == "text"
    return block.text


def new_sessions(ledger: Ledger, labels: Sequence[str] = ()) -> ClientSessions:
    return ClientSessions(ledger, time.monotonic, labels=labels)


class Watch:
    """A manual clock for the heartbeat thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._now = 0.0
        self.sessions = ClientSessions(ledger, lambda: self._now)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self.sessions.wake.set()


def beats(ledger: Ledger, job: Job) -> int:
    return len(ledger.events(job.id, types=["heartbeat"]))


@asynccontextmanager
async def tool_client(
    sessions: ClientSessions,
    *,
    agent: str = "ada",
    session: str | None = "s1",
    mode: str = "auto",
    drawn: Iterator[int] | None = None,
) -> AsyncIterator[ToolClient]:
    """A client and a server in this process that use these sessions."""
    numbers = drawn or count(1)
    reception = CallerResolver(sessions, agent, session, lambda: f"drawn-{next(numbers)}")
    async with Client(build_server(reception), mode=mode) as client:
        yield ToolClient(client)


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **more}


def command(url: str, *options: str, program: str = "holdfast") -> list[str]:
    return ["-m", program, "mcp", "--db", url, *options]


@asynccontextmanager
async def over_stdio(url: str, *options: str, mode: str = "auto", **env: str) -> AsyncIterator[ToolClient]:
    """A client and the server process that it starts."""
    server = StdioServerParameters(command=sys.executable, args=command(url, *options), env=environment(**env))
    async with Client(server, mode=mode) as client:
        yield ToolClient(client)


class Served:
    """A server process, with pipes that the test reads and writes."""

    def __init__(self, url: str, *options: str, program: str = "holdfast", **env: str) -> None:
        pipe = subprocess.PIPE
        words = [sys.executable, *command(url, *options, program=program)]
        self._process = forked.popen(words, env=environment(**env), stdin=pipe, stdout=pipe, stderr=pipe)
        self.logged("serving MCP")

    def logged(self, message: str) -> dict[str, Any]:
        """The next line of its log that contains this text."""
        assert self._process.stderr is not None
        said = []
        for text in self._process.stderr:
            said.append(text)
            found: dict[str, Any] = json.loads(text) if text.startswith("{") else {"message": text}
            if found["message"].startswith(message):
                return found
        raise AssertionError(f"never logged: {message}: {said}")

    def unread(self) -> int:
        """The number of bytes of its output that wait to be read."""
        assert self._process.stdout is not None
        found = array("i", [0])
        fcntl.ioctl(self._process.stdout, termios.FIONREAD, found)
        return found[0]

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def stop_reading(self) -> None:
        """Close its output."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait(60)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Close its input, and return its exit code and its unread output."""
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process.wait()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server. The test ends it if it still runs."""
    running: list[Served] = []

    def server(url: str, *options: str, **env: str) -> Served:
        running.append(Served(url, *options, **env))
        return running[-1]

    yield server
    for one in running:
        one.close()
