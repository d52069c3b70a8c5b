"""Files: the export, a job's proof, and lists of jobs."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.core import limits
from holdfast.services.sealer import Sealer
from tests.support.sealing import drawn, enrol
from tests.support.server import Client, RunningServer, running


@pytest.fixture
def sealed(store_url: str, tmp_path: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A server of a sealed ledger with 500 jobs, and a file with the keys of that ledger."""
    key, trusted = drawn(), tmp_path / "keys.json"
    with holdfast.open(store_url, keys=[key]) as ledger, running(ledger) as server, Sealer(ledger) as sealer:
        enrol(ledger, key)
        ledger.enqueue_many([{"kind": "k", "args": {"text": "x" * 1_000}}] * 500)
        sealer.seal_all()
        trusted.write_text(_run("key", "export", "--db", store_url).stdout)
        yield server, trusted


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("path", ["/v1/export", "/v1/jobs/7/proof"])
def test_a_file_that_was_downloaded_verifies(sealed: tuple[RunningServer, Path], tmp_path: Path, path: str) -> None:
    server, trusted = sealed
    answer = server.client().get(path)
    assert answer.status == 200 and answer.headers["content-disposition"].startswith("attachment")
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/x-ndjson", "nosniff")
    file = tmp_path / "downloaded"
    file.write_bytes(answer.body)
    done = _run("verify", str(file), "--keys", str(trusted))
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_bytes(answer.body.replace(b"xxx", b"xxy", 1))
    assert _run("verify", str(file), "--keys", str(trusted)).returncode == 1


def test_an_export_is_what_the_ledger_writes(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "args": {"text": "x" * 1_000}}] * 500)
    expected: list[bytes] = []
    ledger.export(expected.append)
    assert admin.get("/v1/export").body == b"".join(expected)


def test_a_server_sends_a_limited_number_of_files_at_once(served: RunningServer, admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "args": {"text": "x" * 50_000}}] * 200)
    with ExitStack() as stack:
        for _ in range(limits.HTTP_FILES_MAX):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            connection.sendall(
                f"GET /v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {admin.token}\r\n\r\n".encode()
            )
            assert connection.recv(12) == b"HTTP/1.1 200"  # the rest is not read, so the file waits for its client
        refused = admin.get("/v1/jobs/export")
        assert (refused.status, refused.data["code"], refused.headers["retry-after"]) == (503, "unavailable", "1")
        assert admin.get("/v1/jobs?limit=1&fields=brief").status == 200


@pytest.mark.parametrize("order", ["id", "-id", "-updated", "available"])
def test_a_file_has_all_pages_of_a_list(admin: Client, ledger: Ledger, order: str) -> None:
    ledger.enqueue_many([{"kind": "k"}] * (limits.PAGE_MAX + 5))
    lines = admin.get(f"/v1/jobs/export?order={order}").body.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(1, limits.PAGE_MAX + 6))


def test_jobs_are_listed_as_a_file(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": f"k{number}"} for number in range(3)])
    answer = admin.get("/v1/jobs/export?kind=k1")
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.ndjson"'
    assert [json.loads(line)["id"] for line in answer.body.splitlines()] == [2]
    refused = admin.get("/v1/jobs/export?format=csv")
    assert (refused.status, refused.data["action"]) == (400, "Leave it out: the answer has one JSON object a line.")
