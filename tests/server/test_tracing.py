"""The trace of a request goes through the server into the jobs that it enqueues."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.telemetry.tracing import read_traceparent
from tests.support.server import Client, RunningServer

ROOT = Path(__file__).parents[2]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded it."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


@pytest.mark.usefixtures("without_opentelemetry")
def test_jobs_get_the_trace_of_their_request_unless_they_have_one(served: RunningServer, admin: Client) -> None:
    made = admin.post("/v1/jobs", {"kind": "k"}, traceparent=PARENT).data["job"]
    own = admin.post("/v1/jobs", {"kind": "k", "trace_id": "mine"}, traceparent=PARENT).data["job"]
    batch = admin.post("/v1/jobs/batch", {"jobs": [{"kind": "k"}, {"kind": "k", "trace_id": "mine"}]}, traceparent=PARENT)
    assert batch.status == 201
    assert [made["trace_id"], own["trace_id"]] == [PARENT, "mine"]
    assert [job.trace_id for job in served.ledger.list(order="id")][2:] == [PARENT, "mine"]


@pytest.mark.usefixtures("without_opentelemetry")
def test_a_repeated_request_may_come_from_another_span(admin: Client) -> None:
    first = admin.post("/v1/jobs", {"kind": "k"}, traceparent=PARENT, Idempotency_Key="order-17")
    again = admin.post("/v1/jobs", {"kind": "k"}, traceparent=OTHER, Idempotency_Key="order-17")
    assert (again.status, again.data["job"]["id"], again.data["job"]["trace_id"]) == (201, first.data["job"]["id"], PARENT)


@pytest.mark.parametrize(
    "header",
    ["", "garbage", "x" * 5_000, PARENT.upper(), PARENT.replace("00-4", "ff-4"), f"00-{'0' * 32}-{'1' * 16}-01", PARENT[:-1]],
)
def test_a_traceparent_that_is_not_valid_is_ignored(admin: Client, header: str) -> None:
    assert admin.post("/v1/jobs", {"kind": "k"}, traceparent=header).data["job"]["trace_id"] is None
    assert read_traceparent(header) is None
    assert read_traceparent("01" + PARENT[2:] + "-more") == "01" + PARENT[2:]


def test_the_span_of_the_ledger_is_a_child_of_the_request(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        (tmp_path / "token").write_text(ledger.new_token("client", "shop").text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, PARENT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    _, trace_id, span_id, _ = PARENT.split("-")
    assert (found["trace"], found["parent"]) == (trace_id, span_id)
    assert found["job"] == f"00-{trace_id}-{found['span']}-01"


PROGRAM = """
import json, sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import holdfast
from tests.support.server import Client, running

exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
with holdfast.open("sqlite:///ledger.db") as ledger, running(ledger) as server:
    made = Client(server.port, Path("token").read_text()).post("/v1/jobs", {"kind": "k"}, traceparent=sys.argv[1]).data["job"]
[span] = [one for one in exporter.get_finished_spans() if one.name == "enqueue k"]
print(json.dumps({
    "trace": f"{span.context.trace_id:032x}", "span": f"{span.context.span_id:016x}",
    "parent": f"{span.parent.span_id:016x}", "job": made["trace_id"],
}))
"""
