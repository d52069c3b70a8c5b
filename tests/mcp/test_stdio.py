"""`holdfast mcp` as clients start it, over standard input and output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.core import limits
from holdfast.mcp.stdio import InputLine, LineReader, error_response, validate_message
from tests.mcp.conftest import INITIALIZE, RESUME, Serve, ToolClient, environment, over_stdio
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_one_of_two_concurrent_clients_gets_the_job(sqlite_url: str) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        won: list[Any] = []
        lost: list[Any] = []
        async with over_stdio(sqlite_url) as one, over_stdio(sqlite_url, mode="legacy") as two:

            async def claim(ask: ToolClient) -> None:
                answer = await ask.ask("claim_job", id=job)
                (lost if answer.is_error else won).append(answer.structured_content)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(claim, one)
                tasks.start_soon(claim, two)
            assert len(won) == 1
            [refused] = lost
            assert refused["error_code"] == "lease_conflict" and refused["suggested_action"]
            assert ledger.get(job).status == "running"
        # Both clients are closed.
        wait_until(lambda: ledger.get(job).status == "queued")
        assert ledger.check(job) == []


LONG = "x" * (limits.MCP_BODY_BYTES_MAX + 1)
GARBLED = [
    ("not json", -32700, None),
    ('{"jsonrpc": "2.0"}', -32600, None),
    ("[1]", -32600, None),
    ("\udcff\x00", -32700, None),
    ('{"jsonrpc":"2.0","id":7,"method":' + "[" * 300, -32700, 7),
    (LONG, -32600, None),
    ('{"jsonrpc":"2.0","id":"a-8","method":"ping","params":{"more":"' + LONG, -32600, "a-8"),
]


def test_only_the_protocol_is_on_stdout_and_garbage_does_not_end_the_server(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(sqlite_url)
        for line, code, id_ in GARBLED:
            server.send(line.encode("utf-8", "replace").decode())
            found = server.answer()
            assert (found["error"]["code"], found["id"]) == (code, id_), line[:80]
        server.send("")
        server.send(json.dumps(INITIALIZE))
        assert server.answer()["result"]["serverInfo"]["name"] == "holdfast"
        server.send(json.dumps(RESUME))
        task = server.answer()["result"]["structuredContent"]["task"]
        assert (task["id"], task["claimed_by"]) == (job, "claude-code")
        code, out, err = server.end()
        assert (code, out) == (0, "")
        assert "Traceback" not in err
        assert [json.loads(line)["message"] for line in err.splitlines()] == ["a message cannot be read"] * 7 + ["handed back"]
        assert ledger.get(job).status == "queued"


@pytest.mark.parametrize(
    ("line", "id_", "code"),
    [
        ("[" * 5_000, None, -32700),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":' + '{"a":' * 400 + "1" + "}" * 401, 7, -32600),
        ('{"jsonrpc":"2.0","id":"seven","method":"ping","params":{"a":"\\ud800"}}', "seven", -32700),
        ('{"jsonrpc":"2.0","id":8,"method":3}', 8, -32600),
        ('{"jsonrpc":"2.0","id":8,"result":', None, -32700),
        ('{"jsonrpc":"2.0","id":' + "9" * 5_000 + ',"method":"ping"}', None, None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
    ],
)
def test_unreadable_messages_get_an_error(line: str, id_: Any, code: int | None) -> None:
    wrong = validate_message(InputLine(line, is_whole=True))
    assert wrong is not None and code in (None, wrong.code)
    assert json.loads(error_response(InputLine(line, is_whole=True), wrong))["id"] == id_


def test_a_message_that_is_too_long_is_refused_with_its_id() -> None:
    read, write = os.pipe()
    asked = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"text": "x" * 3_000}})
    os.write(write, f"{asked}\n{{}}\n".encode())
    os.close(write)

    async def lines() -> list[InputLine]:
        return [line async for line in LineReader(read, 2_000)]

    long, short = anyio.run(lines)
    os.close(read)
    wrong = validate_message(long)
    assert wrong is not None and json.loads(error_response(long, wrong))["id"] == 5
    assert short == InputLine("{}", is_whole=True)


def test_a_server_ends_although_its_client_does_not_read(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        jobs = [ledger.enqueue("draft", {"text": "x" * 2_000}).id for _ in range(100)]
        server = serve(sqlite_url)
        for message in (INITIALIZE, RESUME):
            server.send(json.dumps(message))
            server.answer()
        listed = {"name": "list_jobs", "arguments": {"limit": 100}}
        for number in range(3, 8):
            server.send(json.dumps({**RESUME, "id": number, "params": listed}))
        wait_until(lambda: server.unread() > 60_000)
        server.signal(signal.SIGTERM)
        assert server.logged("handed back")["job_id"] == jobs[0]
        assert server.wait() == 0


def test_a_second_initialize_does_not_change_the_client(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        ledger.enqueue("draft")
        server = serve(sqlite_url)
        for message in (INITIALIZE, RESUME):
            server.send(json.dumps(message))
            server.answer()
        other = {**INITIALIZE["params"], "clientInfo": {"name": "other", "version": "1"}}
        server.send(json.dumps({**INITIALIZE, "id": 3, "params": other}))
        assert server.answer()["error"]["code"] == -32600
        done = {"name": "complete", "arguments": {"id": 1}}
        server.send(json.dumps({**RESUME, "id": 4, "params": done}))
        assert server.answer()["result"]["structuredContent"]["task"]["status"] == "succeeded"


def test_a_signal_ends_the_server_in_order_and_the_next_process_of_the_session_continues(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        whys = []
        for number in (signal.SIGTERM, signal.SIGINT):
            server = serve(sqlite_url, "--session", "night", HOLDFAST_AGENT="ada")
            server.send(json.dumps(INITIALIZE))
            server.answer()
            server.send(json.dumps({**RESUME, "params": {"name": "resume", "arguments": {}}}))
            brief = server.answer()["result"]["structuredContent"]
            whys.append((brief["task"]["id"], brief["why"], brief["task"]["attempt"]))
            server.signal(number)
            assert server.logged("ending")["signal"] == number.name
            code, out, err = server.end()
            assert (code, out, "Traceback" in err) == (0, "", False)
            assert (ledger.get(job).status, ledger.get(job).owner) == ("running", "ada")
        assert whys == [(job, "next", 1), (job, "focus", 1)]


def test_a_killed_server_loses_its_job_when_the_lease_is_over(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(sqlite_url)
        server.send(json.dumps(INITIALIZE))
        server.answer()
        server.send(json.dumps(RESUME))
        assert server.answer()["result"]["structuredContent"]["task"]["id"] == job
        server.signal(signal.SIGKILL)
        server.end()
        held = ledger.get(job)
        assert held.status == "running"
        wait_until(lambda: ledger.sweep() and ledger.get(job).status == "queued")
        wait_until(lambda: ledger.claim("next"))
        assert ledger.check(job) == []


def test_a_closed_output_ends_the_server_in_order(sqlite_url: str, serve: Serve) -> None:
    with holdfast.open(sqlite_url) as ledger:
        job = ledger.enqueue("draft").id
        server = serve(sqlite_url)
        server.send(json.dumps(INITIALIZE))
        server.answer()
        server.stop_reading()
        server.send(json.dumps(RESUME))
        server.logged("the client has closed its input")
        assert server.logged("handed back")["job_id"] == job
        assert server.wait() == 0


def test_a_missing_extra_is_reported_with_the_install_command(sqlite_url: str) -> None:
    program = "import sys; sys.modules['mcp'] = None; sys.argv[1:] = ['mcp', '--json']; from holdfast.program import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["error_code"]) == (1, "missing_extra")
    assert found["suggested_action"] == "pip install 'holdfast-ledger[mcp]'"


def test_a_ledger_that_was_not_named_is_not_created(tmp_path: Path) -> None:
    """A client may start its server in any folder. An empty ledger there would look like one without tasks."""
    command = [sys.executable, "-m", "holdfast", "mcp", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), input="", capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["error_code"]) == (3, "no_ledger")
    assert list(tmp_path.iterdir()) == []


OTHERS = """
import sys
from holdfast.cli import main
main(["job", "enqueue", "noop", "--queue", "default", "--db", sys.argv[1]], standalone_mode=False)
"""


def test_other_commands_do_not_import_the_mcp_library(sqlite_url: str) -> None:
    command = [sys.executable, "-X", "importtime", "-c", OTHERS, sqlite_url]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "apsw" in imported
    assert not imported & {"mcp", "mcp_types", "anyio", "pydantic"}
