"""Every route with every kind of caller."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.core.access import AccessRole
from holdfast.server.access import CallerLimits
from holdfast.server.principal import ALLOWED
from holdfast.server.routes import ROUTES, Route
from holdfast.testing import ManualClock
from tests.support.server import Client, RunningServer, running

NAMES = {"job_id": "1", "scope": "kinds", "token_id": "aaaaaaaaaaaa", "key_id": "0" * 16, "code": "conflict"}
OWN = frozenset({"sign-in", "stall", "resume"})
"""Verbs that a worker may use only for itself, or with its fence."""
STREAMS = frozenset({"/v1/events/stream"})
UNKNOWN = "hft_aaaaaaaaaaaa_" + "A" * 43 + "AAAAAA"


@pytest.fixture(scope="module")
def shared_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, shared_clock: ManualClock) -> Iterator[RunningServer]:
    """One server for all routes. It lets one address send any number of wrong tokens."""
    url = f"sqlite:///{tmp_path_factory.mktemp('roles')}/ledger.db"
    limits = CallerLimits(wrong_tokens_max=100_000)
    with holdfast.open(url, clock=shared_clock) as ledger, running(ledger, caller_limits=limits) as server:
        ledger.enqueue("k")
        yield server


@pytest.fixture(scope="module")
def expired(shared: RunningServer, shared_clock: ManualClock) -> Client:
    client = shared.client("admin", "late", expires="1h")
    shared_clock.advance(3_601)
    return client


def _send(client: Client, route: Route) -> Any:
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "x"), route.path)
    path += "?wait_s=0" if path == "/v1/wake" else ""
    return client.send(route.method, path, {} if route.body is not None else None)


@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.method} {route.path}" for route in ROUTES])
def test_a_route_answers_only_those_who_may_use_it(shared: RunningServer, expired: Client, route: Route) -> None:
    served = shared
    revoked = served.client("admin", "gone")
    assert revoked.token is not None
    served.ledger.revoke_token(revoked.token.split("_")[1])
    callers = [served.anonymous(), Client(served.port, "garbage"), Client(served.port, UNKNOWN), revoked, expired]
    if route.least != "none":
        answers = [_send(client, route) for client in callers]
        assert {answer.status for answer in answers} == {401}
        assert {(answer.data["detail"], answer.headers["www-authenticate"]) for answer in answers} == {
            ("a valid token is needed", "Bearer")
        }
    for role in AccessRole:
        client = served.client(role, f"a-{role}", act_as=[])
        if role not in ALLOWED[route.least]:
            refused = _send(client, route)
            assert (refused.status, refused.data["code"]) == (403, "forbidden"), role
            assert set(refused.data["context"]["allowed"]) == {str(one) for one in ALLOWED[route.least]}
        elif route.path not in STREAMS:
            answer = _send(client, route)
            is_other_actor = (route.least == "worker" and role is not AccessRole.WORKER) or route.verb in OWN
            assert answer.status not in (401, 500), (role, answer.body)
            assert is_other_actor or answer.status != 403 or answer.data["code"] != "forbidden", (role, answer.body)


def test_what_the_caller_may_do_is_listed(served: RunningServer) -> None:
    me = served.client("client", "shop", queues=["mail*"]).get("/v1/me").data
    assert (me["name"], me["role"], me["queues"], me["act_as"]) == ("shop", "client", ["mail*"], [])
    assert {"cancel", "enqueue", "read"} <= set(me["can"]) and not {"pause", "claim", "tokens"} & set(me["can"])


def test_a_worker_acts_only_as_itself(served: RunningServer, ledger: Ledger) -> None:
    ledger.enqueue("k")
    worker = served.client("worker", "arm-1", queues=["default"])
    refused = worker.post("/v1/claims", {"queues": ["default"]}, Holdfast_Actor="worker:arm-2#b")
    assert (refused.status, refused.data["code"]) == (403, "forbidden")
    assert worker.send("PUT", "/v1/workers/arm-2", {}).status == 403
    assert worker.post("/v1/claims", {"queues": ["other"]}).status == 403
    assert worker.post("/v1/claims", {"queues": ["default"]}).data["jobs"][0]["owner"] == "arm-1"


def test_an_actor_of_act_as_is_the_actor_of_the_event(served: RunningServer, ledger: Ledger) -> None:
    gateway = served.client("client", "gateway", act_as=["client:shop-*"])
    gateway.post("/v1/jobs", {"kind": "k"}, Holdfast_Actor="client:shop-7")
    assert gateway.post("/v1/jobs", {"kind": "k"}, Holdfast_Actor="client:bank").status == 403
    assert [event.actor for event in ledger.events()] == ["client:shop-7"]


@pytest.mark.parametrize("queues", [["mail"], ["ma*"]])
def test_an_agent_resumes_only_from_queues_of_its_token(served: RunningServer, ledger: Ledger, queues: list[str]) -> None:
    ledger.enqueue("k", queue="crawl", priority=9)
    job = ledger.enqueue("k", queue="mail")
    agent = served.client("worker", "arm-1", queues=queues)
    assert agent.post("/v1/tasks/resume", {"queues": ["crawl"]}).status == 403
    assert agent.post("/v1/tasks/resume").data["task"]["id"] == job.id
    agent.post(f"/v1/tasks/{job.id}/complete")
    assert agent.post("/v1/tasks/resume").data["task"] is None
    assert served.client("worker", "arm-2", queues=["none-*"]).post("/v1/tasks/resume").status == 400


def test_one_key_of_two_callers_is_two_requests(served: RunningServer, ledger: Ledger) -> None:
    for name in ("shop", "bank"):
        served.client("client", name).post("/v1/jobs", {"kind": "k"}, Idempotency_Key="same")
    assert len(ledger.list()) == 2


def test_a_browser_session_begins_and_ends(served: RunningServer, ledger: Ledger) -> None:
    token = ledger.new_token("operator", "kim").text
    page = {"Origin": served.url, "Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
    begun = served.anonymous().post("/v1/session", {"token": token}, **page)
    cookie = begun.headers["set-cookie"]
    assert begun.status == 204 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    browser = served.anonymous().acting(Cookie=cookie.partition(";")[0])
    assert browser.get("/v1/me").data["name"] == "kim"
    assert browser.post("/v1/queues/q/pause", {}).status == 403
    assert browser.post("/v1/queues/q/pause", {}, **{**page, "Sec_Fetch_Site": "cross-site"}).status == 403
    assert browser.post("/v1/queues/q/pause", {}, **{**page, "Origin": "null"}).status == 403
    assert browser.post("/v1/queues/q/pause", {}, **page).status == 200
    assert browser.send("DELETE", "/v1/session", None, raw=None, **page).status == 204
    assert browser.get("/v1/me").status == 401
    assert served.anonymous().post("/v1/session", {"token": "wrong"}, **page).status == 401
    assert served.anonymous().post("/v1/session", {}, **page).status == 400


def test_a_login_code_works_once(served: RunningServer, ledger: Ledger) -> None:
    page = {"Origin": served.url, "Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
    code = ledger.local_login_code()
    assert [served.anonymous().post("/v1/session", {"code": code}, **page).status for _ in range(2)] == [204, 401]
