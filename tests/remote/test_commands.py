"""Commands whose ledger is a server."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from tests.support import forked
from tests.support.server import RunningServer

Run = Callable[..., Any]


@pytest.fixture
def run(served: RunningServer, token: str, tmp_path: Path) -> Run:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(token)
    (tmp_path / "holdfast.toml").write_text(f'url = "{served.url}"\ntoken_file = "token"\n')
    env = {name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}

    def run(*words: str) -> Any:
        """Return the data that a command answers, or its error code."""
        done = forked.run([sys.executable, "-m", "holdfast", *words, "--json"], tmp_path, env)
        answer = json.loads(done.out)
        return answer["data"] if answer["success"] else answer["error_code"]

    return run


def test_jobs_are_enqueued_listed_and_cancelled(run: Run, behind: Ledger) -> None:
    made = run("job", "enqueue", "index_page", "--queue", "crawl", "--args", '{"url": "/"}')
    assert (made["is_new"], made["job"]["args"]) == (True, {"url": "/"})
    assert [job["id"] for job in run("job", "list")["jobs"]] == [1]
    assert run("job", "get", "1")["job"]["status"] == "queued"
    assert run("job", "cancel", "1")["cancelled"][0]["is_over"]
    assert [event["type"] for event in run("job", "events", "1")["events"]] == ["enqueued", "cancelled"]
    assert run("job", "get", "2") == "not_found"
    assert behind.get(1).status == "cancelled"


def test_a_job_is_waited_for_and_its_result_is_read(run: Run, behind: Ledger) -> None:
    made = behind.enqueue("index_page")
    assert run("job", "wait", "1", "--timeout", "10ms") == run("job", "result", "1") == "result_timeout"
    [held] = behind.claim("ada", start=True)
    assert held.fence is not None
    behind.complete(held.fence, {"pages": 3})
    assert [job["status"] for job in run("job", "wait", "1")["jobs"]] == ["succeeded"]
    assert run("job", "result", "1") == {"job_id": made.id, "result": {"pages": 3}}


def test_an_agent_works_on_a_task(run: Run, behind: Ledger) -> None:
    behind.enqueue("index_page", {"url": "/"})
    assert run("resume", "--agent", "ada")["task"]["args"] == {"url": "/"}
    assert run("task", "heartbeat", "1", "--agent", "ada", "--checkpoint", '{"n": 1}')["task"]["attempt"] == 1
    assert run("task", "start", "1", "--agent", "bob") == "lease_conflict"
    assert run("task", "get", "1")["task"]["checkpoint"] == {"n": 1}
    assert run("task", "complete", "1", "--agent", "ada", "--result", '{"pages": 3}')["task"]["status"] == "succeeded"
    assert behind.get(1).result == {"pages": 3}
    assert behind.check(1) == []


def test_queues_policies_and_workers_are_managed(run: Run, behind: Ledger) -> None:
    assert run("doctor")["ledger_id"] == behind.id
    behind.enqueue("index_page")
    run("queue", "pause", "default", "--reason", "lunch")
    assert [queue["pause_reason"] for queue in run("queue", "list")["queues"]] == ["lunch"]
    run("policy", "set", "index_page", "lease_ttl=30s")
    assert behind.policies()["kind"] == {"index_page": {"lease_ttl_ms": 30_000}}
    run("policy", "set", "index_page", "attempts_max=3")
    run("policy", "unset", "index_page", "lease_ttl")
    assert behind.policies()["kind"] == {"index_page": {"attempts_max": 3}}
    assert run("worker", "list")["workers"] == []
    assert run("explain", "1")["job_id"] == 1


def test_a_ledger_is_exported(run: Run, behind: Ledger, tmp_path: Path) -> None:
    behind.enqueue("index_page")
    run("events", "export", "--out", "all.jsonl")
    lines: list[bytes] = []
    behind.export(lines.append)
    assert (tmp_path / "all.jsonl").read_bytes().splitlines(keepends=True)[1:] == lines[1:]


def test_a_command_says_that_the_server_does_not_answer(tmp_path: Path) -> None:
    """It says so at once, and is stopped here long before it gives up."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    env = {name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast", "job", "list", "--db", f"http://127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = running.stderr.readline()
        running.terminate()
    expected = rf"no answer from 127\.0\.0\.1:{port} yet: cannot reach .*: Connection refused; it is tried for \d+ s more\n"
    assert re.fullmatch(expected, said), said


def test_a_wrong_token_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    assert run("job", "list") == "unauthenticated"
