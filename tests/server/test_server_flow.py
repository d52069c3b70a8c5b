"""Limits, the settings of queues, and the options of jobs for flow control, over HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Ledger
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


def test_a_task_is_resumed_and_started_with_labels(served: RunningServer, ledger: Ledger) -> None:
    first, second = (ledger.enqueue("k", requires=["gpu"]).id for _ in range(2))
    ada = served.client("worker", "ada")
    idle = ada.post("/v1/tasks/resume", {}).data
    assert (idle["task"], idle["nothing"]["limited"]) == (None, 2)
    assert ada.post("/v1/tasks/resume", {"labels": ["gpu"]}).data["task"]["id"] == first
    assert ada.post(f"/v1/tasks/{second}/start", {}).status == 409
    assert ada.post(f"/v1/tasks/{second}/start", {"labels": ["gpu"]}).data["task"]["id"] == second


def test_a_token_needs_the_queue_that_the_handler_of_a_later_job_declares(served: RunningServer, ledger: Ledger) -> None:
    ledger.declare_policy("report", queue="reports")
    mail = served.client("operator", "mail", queues=["mail", "default"])
    assert mail.send("PUT", "/v1/schedules/u", {"kind": "report", "every": "1h"}).status == 403
    assert mail.send("PUT", "/v1/groups/i", {"then": {"kind": "report"}}).status == 403
    assert mail.send("PUT", "/v1/groups/i", {"then": {"kind": "other"}}).status == 200


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


def test_an_operator_frees_the_job_of_a_worker_that_is_gone(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("k", for_worker="gone")
    kim, eve = served.client("operator", "kim"), served.client("worker", "eve")
    at = f"/v1/jobs/{job.id}/move"
    assert eve.post(at, {"for_worker": None}).status == 403
    for body in ({}, {"for_worker": ""}, {"for_worker": 7}, {"for_worker_for": "1m", "queue": "q"}):
        assert kim.post(at, body).status == 400, body
    assert served.client("operator", "mail", queues=["mail"]).post(at, {"for_worker": "eve"}).status == 404
    assert kim.post(at, {"for_worker": "arm"}).data["job"]["for_worker"] == "arm"
    assert kim.post(at, {"for_worker": None}).data["job"]["for_worker"] is None


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
