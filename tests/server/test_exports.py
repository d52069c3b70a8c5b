"""Files: the export, a job's proof, and lists of jobs."""

import csv
import io
import json

from holdfast import Ledger
from tests.support.server import Client


def test_an_export_is_a_file_that_verifies(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "args": {"text": "x" * 1_000}}] * 500)
    answer = admin.get("/v1/export")
    assert answer.status == 200 and answer.headers["content-disposition"].startswith("attachment")
    expected: list[bytes] = []
    ledger.export(expected.append)
    assert answer.body == b"".join(expected)


def test_jobs_are_listed_as_files(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": f"k{number}", "queue": "=1+1"} for number in range(3)])
    lines = admin.get("/v1/jobs/export?format=ndjson&kind=k1").body.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [2]
    rows = list(csv.DictReader(io.StringIO(admin.get("/v1/jobs/export?format=csv").body.decode())))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert {row["queue"] for row in rows} == {"'=1+1"}
