"""Headers of answers: the ledger's time, and whether a request was answered before."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.server import clock as server_clock
from holdfast.testing import ManualClock
from tests.support.server import Answer, Client, RunningServer
from tests.support.waiting import wait_until


def _is_replayed(answer: Answer) -> bool:
    assert answer.status < 300, answer.body
    found = answer.headers.get("idempotent-replayed")
    assert found in (None, "true")
    return found is not None


def _now(answer: Answer) -> datetime:
    text = answer.headers["holdfast-now"]
    assert len(text) == len("2026-11-15T22:10:01.250000Z") and text.endswith("Z")
    return datetime.fromisoformat(text)


def test_every_answer_has_the_ledgers_time(admin: Client, served: RunningServer, clock: ManualClock) -> None:
    """The clock of this ledger stands still, far from that of the machine."""
    began = datetime.now(UTC)
    answers = [
        admin.get("/v1/now"),
        admin.get("/v1/jobs/99"),
        admin.get("/v1/no-such-route"),
        served.anonymous().get("/v1/jobs"),
        admin.post("/v1/jobs", {"kind": "k"}),
        admin.post("/v1/jobs", {"kind": 1}),
    ]
    for answer in answers:
        passed = _now(answer) - clock.now()
        assert timedelta(seconds=-1) < passed < datetime.now(UTC) - began + timedelta(seconds=1)
    assert "holdfast-now" not in admin.get("/healthz").headers


def test_the_time_follows_the_ledgers_clock(admin: Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_clock, "MEASURED_SECONDS", 0.0)
    clock.advance(3_600)
    wait_until(lambda: abs(_now(admin.get("/v1/now")) - clock.now()) < timedelta(minutes=1), what="the new time")


def test_the_time_is_not_read_for_each_answer(admin: Client, ledger: Ledger, served: RunningServer) -> None:
    reads: list[datetime] = []

    def read_now() -> datetime:
        reads.append(ledger.now())
        return reads[-1]

    served.server.clock._read_now = read_now
    for _ in range(20):
        admin.get("/v1/position")
    assert reads == []


def test_a_repeated_key_is_marked(admin: Client, served: RunningServer, worker: Client, ledger: Ledger) -> None:
    def twice(client: Client, path: str, body: Any, method: str = "POST") -> tuple[Answer, Answer]:
        key = f"k-{path}"
        first, again = (client.send(method, path, body, Idempotency_Key=key) for _ in range(2))
        assert (_is_replayed(first), _is_replayed(again)) == (False, True), path
        return first, again

    first, again = twice(admin, "/v1/jobs", {"kind": "k"})
    assert first.data == again.data
    first, again = twice(admin, "/v1/jobs/batch", {"jobs": [{"kind": "k"}] * 3})
    assert first.data["job_ids"] == again.data["job_ids"]
    first, again = twice(worker, "/v1/claims", {"queues": ["default"], "limit": 3})
    assert [job["fence"] for job in first.data["jobs"]] == [job["fence"] for job in again.data["jobs"]]
    fences = [job["fence"] for job in first.data["jobs"]]
    one, two, three = ({"fence": fence} for fence in fences)
    twice(worker, f"/v1/jobs/{fences[0]['job_id']}/start", one)
    twice(worker, f"/v1/jobs/{fences[0]['job_id']}/heartbeat", {**one, "checkpoint": {"n": 1}})
    twice(worker, f"/v1/jobs/{fences[0]['job_id']}/complete", one)
    twice(worker, f"/v1/jobs/{fences[1]['job_id']}/release", two)
    worker.post(f"/v1/jobs/{fences[2]['job_id']}/start", three)
    twice(worker, "/v1/completions", {"completions": [three]})
    twice(admin, "/v1/queues/default/pause", {"reason": "why"})
    twice(admin, "/v1/policies/kinds/k", {"attempts_max": 3}, "PATCH")
    twice(admin, f"/v1/jobs/{fences[1]['job_id']}/cancel", {})
    agent = served.client("worker", "ada")
    task = ledger.enqueue("read", queue="tasks").id
    twice(agent, f"/v1/tasks/{task}/start", {})
    twice(agent, f"/v1/tasks/{task}/complete", {"result": 1})


def test_what_is_decided_again_is_not_marked(admin: Client, worker: Client) -> None:
    empty = [worker.post("/v1/claims", {"queues": ["none"]}, Idempotency_Key="c-1") for _ in range(2)]
    assert [_is_replayed(answer) for answer in empty] == [False, False]
    admin.post("/v1/jobs", {"kind": "k", "dedupe_key": "d"})
    found = admin.post("/v1/jobs", {"kind": "k", "dedupe_key": "d"})
    assert (found.data["is_new"], _is_replayed(found)) == (False, False)
    first = admin.post("/v1/jobs", {"kind": "k"}, Idempotency_Key="e-1")
    other = admin.post("/v1/jobs", {"kind": "l"}, Idempotency_Key="e-1")
    assert (first.status, other.status, "idempotent-replayed" in other.headers) == (201, 422, False)
