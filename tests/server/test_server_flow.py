"""Limits, the settings of queues, and the options of jobs for flow control, over HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Ledger
from holdfast.server.redact import Redaction
from tests.support.server import RunningServer, running
from tests.support.waiting import wait_until


def test_an_operator_sets_limits_and_a_reader_reads_them(served: RunningServer, ledger: Ledger) -> None:
    kim, eye = served.client("operator", "kim"), served.client("reader", "eye")
    made = kim.send("PUT", "/v1/limits/openai", {"concurrent": 20, "rate": "600/1m", "by": "args.tenant"})
    assert (made.status, made.data["limit"]["updated_by"]) == (200, "kim")
    assert kim.send("PUT", "/v1/limits/openai/keys/ac%2Fme", {"concurrent": 50}).status == 200
    shown = eye.get("/v1/limits").data["limits"]
    assert [(one["name"], one["concurrent"], one["rate"], one["burst"], one["by"]) for one in shown] == [
        ("openai", 20, "600/1m", 10, "args.tenant")
    ]
    assert eye.get("/v1/limits/openai").data["limit"] == shown[0]
    [key] = eye.get("/v1/limits/openai/keys").data["keys"]
    assert (key["key"], key["concurrent"], key["is_own"], key["used"]) == ("ac/me", 50, True, 0)
    assert (key["waiting"], key["waiting_since"]) == (0, None)
    assert eye.get("/v1/limits/openai/keys?after=ac%2Fme").data == {"keys": []}
    assert eye.get("/v1/limits/openai/keys?key=ac%2Fme").data == {"keys": [key]}
    assert eye.get("/v1/limits/openai/keys?key=other").data == {"keys": []}
    kim.send("PUT", "/v1/limits/shared", {"concurrent": 2})
    ledger.enqueue("k", limits=["shared"])
    assert [key["key"] for key in eye.get("/v1/limits/shared/keys").data["keys"]] == [""]
    assert eye.get("/v1/limits/shared/keys?after=").data == {"keys": []}
    kim.send("DELETE", "/v1/limits/shared")
    assert kim.send("DELETE", "/v1/limits/openai").status == 204
    assert [kim.send("DELETE", "/v1/limits/openai").status, eye.get("/v1/limits/openai").status] == [404, 404]
    assert ledger.limits() == []


def test_a_bad_limit_is_refused(served: RunningServer, ledger: Ledger) -> None:
    kim = served.client("operator", "kim")
    for body in ({}, {"rate": "600"}, {"concurrent": "1"}, {"concurrent": 1, "by": "x"}, {"concurrent": 1, "key": "a"}):
        assert kim.send("PUT", "/v1/limits/api", body).status == 400, body
    assert kim.send("PUT", "/v1/limits/api/keys/a", {"concurrent": 1}).status == 404
    gone = kim.send("PUT", "/v1/queues/crawl/settings", {"ageing": "+1/10m"})
    assert (gone.status, gone.data["code"]) == (400, "validation_error")
    assert gone.data["action"] == "Raise the priority of a job that has waited too long with reprioritise."
    assert (ledger.limits(), ledger.queue_settings()) == ([], [])


def test_a_request_with_the_same_key_sets_once(served: RunningServer, ledger: Ledger) -> None:
    kim = served.client("operator", "kim")
    for concurrent, status in ((1, 200), (1, 200), (2, 422)):
        answer = kim.send("PUT", "/v1/limits/api", {"concurrent": concurrent}, Idempotency_Key="r-1")
        assert answer.status == status, answer.body
    assert ledger.limit("api").concurrent == 1


def test_a_token_of_some_queues_changes_no_limit(served: RunningServer, ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    before = ledger.limits()
    kim = served.client("operator", "kim", queues=["mail"])
    assert kim.send("PUT", "/v1/limits/api", {"concurrent": 9}).status == 403
    assert kim.send("PUT", "/v1/limits/api/keys/a", {"concurrent": 9}).status == 403
    assert kim.send("DELETE", "/v1/limits/api").status == 403
    assert kim.get("/v1/limits/api/keys").status == 403
    assert kim.get("/v1/limits").data["limits"][0]["name"] == "api"
    assert (ledger.limits(), ledger.limit_keys("api")) == (before, [])


def test_settings_of_queues(served: RunningServer, ledger: Ledger) -> None:
    kim, eye = served.client("operator", "kim", queues=["mail"]), served.client("reader", "eye", queues=["mail"])
    ledger.set_queue("crawl", weights={"b": 2})
    made = kim.send("PUT", "/v1/queues/mail/settings", {"weights": {"a": 3}}).data["settings"]
    assert made == {"queue": "mail", "weights": {"a": 3}}
    assert kim.send("PUT", "/v1/queues/crawl/settings", {}).status == 403
    assert eye.get("/v1/queue-settings").data == {"queues": [made]}
    assert eye.get("/v1/queues/mail/settings").data == {"settings": made}
    assert eye.get("/v1/queues/crawl/settings").status == 403
    boss = served.client("reader", "boss")
    assert boss.get("/v1/queues/other/settings").data == {"settings": {"queue": "other", "weights": {}}}
    assert len(ledger.queue_settings()) == 2


def test_jobs_have_the_options_and_show_them(served: RunningServer, ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=5)
    shop, arm = served.client("client", "shop"), served.client("worker", "robot-7")
    options = {"limits": {"api": 3}, "partition": "t", "requires": ["gpu"], "for_worker": "robot-7"}
    made = shop.post("/v1/jobs", {"kind": "k", **options}).data["job"]
    assert [made[name] for name in ("limits", "partition", "requires", "for_worker")] == [{"api": 3}, "t", ["gpu"], "robot-7"]
    plain = shop.post("/v1/jobs", {"kind": "k", "limits": ["api"]}).data["job"]
    assert [plain[name] for name in ("limits", "partition", "requires", "for_worker")] == [{"api": 1}, None, [], None]
    assert shop.post("/v1/jobs", {"kind": "k", "limits": ["missing"]}).status == 404
    refused = arm.post(f"/v1/jobs/{made['id']}/claim", {})
    assert (refused.status, refused.data["context"]["why"]) == (409, "label")
    assert arm.post("/v1/claims", {"queues": ["default"], "limit": 9}).data["jobs"][0]["id"] == plain["id"]
    assert arm.post(f"/v1/jobs/{made['id']}/claim", {"labels": ["gpu"]}).data["job"]["owner"] == "robot-7"


def test_a_claim_has_labels(served: RunningServer, ledger: Ledger) -> None:
    ledger.enqueue("k", requires=["gpu"])
    arm = served.client("worker", "arm")
    assert arm.post("/v1/claims", {"queues": ["default"]}).data["jobs"] == []
    assert len(arm.post("/v1/claims", {"queues": ["default"], "labels": ["gpu", "zone:berlin"]}).data["jobs"]) == 1


def test_a_task_is_resumed_and_started_with_labels(served: RunningServer, ledger: Ledger) -> None:
    first, second = (ledger.enqueue("k", requires=["gpu"]).id for _ in range(2))
    ada = served.client("worker", "ada")
    idle = ada.post("/v1/tasks/resume", {}).data
    assert (idle["task"], idle["nothing"]["limited"]) == (None, 2)
    assert ada.post("/v1/tasks/resume", {"labels": ["gpu"]}).data["task"]["id"] == first
    assert ada.post(f"/v1/tasks/{second}/start", {}).status == 409
    assert ada.post(f"/v1/tasks/{second}/start", {"labels": ["gpu"]}).data["task"]["id"] == second


def test_jobs_that_are_made_later_go_to_the_queue_that_their_handler_declares(served: RunningServer, ledger: Ledger) -> None:
    ledger.declare_policy("report", queue="reports")
    kim = served.client("operator", "kim")
    assert kim.send("PUT", "/v1/schedules/s", {"kind": "report", "every": "1h"}).data["schedule"]["queue"] == "reports"
    assert kim.send("PUT", "/v1/schedules/t", {"kind": "other", "every": "1h"}).data["schedule"]["queue"] == "default"
    then = {"kind": "report"}
    assert kim.send("PUT", "/v1/groups/g", {"then": then}).data["group"]["then"]["queue"] == "reports"
    assert kim.send("PUT", "/v1/groups/h", {"then": {"kind": "other"}}).data["group"]["then"]["queue"] == "default"
    mail = served.client("operator", "mail", queues=["mail", "default"])
    assert mail.send("PUT", "/v1/schedules/u", {"kind": "report", "every": "1h"}).status == 403
    assert mail.send("PUT", "/v1/groups/i", {"then": then}).status == 403
    assert mail.send("PUT", "/v1/groups/i", {"then": {"kind": "other"}}).status == 200


def test_a_schedule_has_the_options(served: RunningServer, ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    kim = served.client("operator", "kim")
    fields = {"kind": "k", "every": "1h", "limits": ["api"], "partition": "p", "requires": ["x"], "for_worker": "w"}
    assert kim.send("PUT", "/v1/schedules/s", fields).status == 200
    job = kim.post("/v1/schedules/s/run").data["job"]
    assert [job[name] for name in ("limits", "partition", "requires", "for_worker")] == [{"api": 1}, "p", ["x"], "w"]


def test_a_worker_asks_only_for_itself_when_a_job_is_ready(served: RunningServer, ledger: Ledger) -> None:
    ledger.enqueue("k", for_worker="arm", delay="10s", requires=["gpu"])
    arm, eve = served.client("worker", "arm"), served.client("worker", "eve")
    assert arm.post("/v1/claims", {"queues": ["default"], "labels": ["gpu"]}).data == {"jobs": []}
    asked = "/v1/until-ready?queues=default&labels=gpu&labels=x"
    assert arm.get(asked).data == arm.get(f"{asked}&worker=arm").data == {"seconds": 10.0}
    assert arm.get("/v1/until-ready?queues=default").data == eve.get(asked).data == {"seconds": None}
    refused = eve.get(f"{asked}&worker=arm")
    assert (refused.status, refused.data["code"]) == (403, "forbidden")
    gate = served.client("worker", "gate", act_as=["worker:a*"])
    assert gate.get(f"{asked}&worker=arm").data == {"seconds": 10.0}


def test_a_robot_cannot_take_the_job_of_another_by_a_label(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("k", for_worker="arm")
    arm, eve = served.client("worker", "arm"), served.client("worker", "eve")
    for body in ({"labels": ["worker:arm"]}, {"labels": ["gpu", "worker:eve"]}):
        refused = eve.post("/v1/claims", {"queues": ["default"], **body})
        assert (refused.status, refused.data["code"]) == (400, "validation_error")
        assert eve.post(f"/v1/jobs/{job.id}/claim", body).status == 400
    assert eve.get("/v1/until-ready?queues=default&labels=worker:arm").status == 400
    assert eve.post("/v1/claims", {"queues": ["default"]}).data == {"jobs": []}
    assert eve.post(f"/v1/jobs/{job.id}/claim").data["context"]["why"] == "label"
    assert [one["id"] for one in arm.post("/v1/claims", {"queues": ["default"]}).data["jobs"]] == [job.id]


def test_an_operator_frees_the_job_of_a_worker_that_is_gone(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("k", for_worker="gone")
    kim, eve = served.client("operator", "kim"), served.client("worker", "eve")
    at = f"/v1/jobs/{job.id}/move"
    assert eve.post(at, {"for_worker": None}).status == 403
    for body in ({}, {"for_worker": ""}, {"for_worker": 7}, {"for_worker_for": "1m", "queue": "q"}):
        assert kim.post(at, body).status == 400, body
    assert kim.post(at, {"for_worker": "arm"}).data["job"]["for_worker"] == "arm"
    assert kim.post(at, {"for_worker": None, "reason": "arm is gone"}).data["job"]["for_worker"] is None
    moves = kim.get(f"/v1/jobs/{job.id}/events").data["events"][1:]
    assert [(one["type"], one["payload"]["for_worker"], one["payload"]["from_worker"], one["reason"]) for one in moves] == [
        ("moved", "arm", "gone", None),
        ("moved", "", "arm", "arm is gone"),
    ]
    hidden = served.client("operator", "mail", queues=["mail"])
    assert hidden.post(at, {"for_worker": "eve"}).status == 404
    assert [one["id"] for one in eve.post("/v1/claims", {"queues": ["default"]}).data["jobs"]] == [job.id]


def test_hidden_arguments_are_not_shown_as_keys(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.card")
    ledger.enqueue("k", {"card": "4711"}, limits=["api"])
    ledger.claim("w")
    job = ledger.enqueue("k", {"card": "4711"}, limits=["api"])
    with running(ledger, redaction=Redaction(["args.card"])) as served:
        eye, kim = served.client("reader", "eye"), served.client("operator", "kim")
        at_job = f"/v1/jobs/{job.id}"
        for path in ("/v1/limits/api/keys", f"{at_job}/events", at_job, "/v1/events", f"{at_job}/explain"):
            shown = eye.get(path)
            assert shown.status == 200
            assert b"4711" not in shown.body, path
            assert b"4711" in kim.get(path).body
        assert eye.get("/v1/limits/api/keys?key=4711").status == 403
        assert kim.get("/v1/limits/api/keys?key=4711").data["keys"][0]["key"] == "4711"


@pytest.fixture
def live(real: Ledger) -> Iterator[RunningServer]:
    """A server of a ledger on the real clock."""
    with running(real) as server:
        yield server


def test_a_job_for_one_worker_wakes_its_waiting_claim(live: RunningServer, real: Ledger) -> None:
    body = {"queues": ["default"], "wait_s": 20}
    names = [f"w-{number}" for number in range(4)]
    clients = [live.client("worker", name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.post, "/v1/claims", body) for client in clients]
        wait_until(lambda: live.server.claims.waiting == len(clients))
        for name in reversed(names):
            real.enqueue("k", for_worker=name)
        found = [one.result(20).data["jobs"] for one in waiting]
    assert [[job["for_worker"] for job in jobs] for jobs in found] == [[name] for name in names]


def test_a_waiting_claim_with_labels_is_woken_beside_others(live: RunningServer, real: Ledger) -> None:
    plain, able = live.client("worker", "plain"), live.client("worker", "able")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(plain.post, "/v1/claims", {"queues": ["default"], "wait_s": 20})
        wait_until(lambda: live.server.claims.waiting == 1)
        second = pool.submit(able.post, "/v1/claims", {"queues": ["default"], "wait_s": 20, "labels": ["gpu"]})
        wait_until(lambda: live.server.claims.waiting == 2)
        made = real.enqueue("k", requires=["gpu"])
        assert [job["id"] for job in second.result(20).data["jobs"]] == [made.id]
        real.enqueue("k")
        assert len(first.result(20).data["jobs"]) == 1
