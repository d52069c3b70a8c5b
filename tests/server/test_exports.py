"""Files: the export, a job's proof, and lists of jobs."""

import csv
import io
import json
import socket
from contextlib import ExitStack

import pytest

from holdfast import Ledger
from holdfast.core import limits
from tests.support.server import Client, RunningServer


def test_an_export_is_a_file_that_verifies(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "args": {"text": "x" * 1_000}}] * 500)
    answer = admin.get("/v1/export")
    assert answer.status == 200 and answer.headers["content-disposition"].startswith("attachment")
    expected: list[bytes] = []
    ledger.export(expected.append)
    assert answer.body == b"".join(expected)


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


def test_jobs_are_listed_as_files(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": f"k{number}", "queue": "=1+1"} for number in range(3)])
    lines = admin.get("/v1/jobs/export?format=ndjson&kind=k1").body.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [2]
    rows = list(csv.DictReader(io.StringIO(admin.get("/v1/jobs/export?format=csv").body.decode())))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert {row["queue"] for row in rows} == {"'=1+1"}
