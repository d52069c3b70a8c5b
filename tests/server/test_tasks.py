"""Agents over HTTP."""

from holdfast import Ledger
from tests.support.server import RunningServer


def test_an_agent_resumes_works_and_completes(served: RunningServer, ledger: Ledger) -> None:
    ledger.enqueue("write", {"page": 1})
    ada = served.client("worker", "ada").acting(Holdfast_Incarnation="s-1")
    brief = ada.post("/v1/tasks/resume").data
    assert (brief["task"]["id"], brief["task"]["args"], brief["why"]) == (1, {"page": 1}, "next")
    beat = ada.post("/v1/tasks/1/heartbeat", {"stage": "draft", "checkpoint": {"line": 3}}).data["task"]
    assert (beat["stage"], beat["claimed_by"], beat["session"]) == ("draft", "ada", "s-1")
    assert [task["id"] for task in ada.get("/v1/tasks?mine=true").data["tasks"]] == [1]
    refused = served.client("worker", "bob").post("/v1/tasks/1/start")
    assert (refused.status, refused.data["code"]) == (409, "lease_conflict")
    done = ada.post("/v1/tasks/1/complete", {"result": {"ok": True}}, Idempotency_Key="done-1").data["task"]
    again = ada.post("/v1/tasks/1/complete", {"result": {"ok": True}}, Idempotency_Key="done-1").data["task"]
    assert (done["status"], again["replayed"]) == ("succeeded", True)
    assert ada.get("/v1/tasks/1").data["task"]["result"] == {"ok": True}
    assert ada.get("/v1/tasks/1/history").data["events"]
