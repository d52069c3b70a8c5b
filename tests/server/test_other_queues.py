"""A token for some queues: no route tells it anything of the others, and none changes them."""

import re
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.server.routes import ROUTES, Route
from holdfast.services import HistoryService
from tests.support.server import Client, RunningServer

HIDDEN = "hidden"
"""Part of every name and content in the other queue."""
NAMES = {"job_id": "1", "scope": "tiers", "name": HIDDEN, "token_id": "aaaaaaaaaaaa", "key_id": "0" * 16, "code": "conflict"}
STREAMS = frozenset({"/v1/events/stream"})
"""A stream has a test of its own."""


def _fill(ledger: Ledger) -> None:
    """A dead letter with a dependent, a held job and a worker in the hidden queue, and a job that depends on one of them."""
    policy: Any = {"attempts_max": 1}
    job = ledger.enqueue("hidden-kind", {"text": HIDDEN}, queue="hidden-queue", correlation_id="hidden-c", policy=policy)
    [held] = ledger.claim("hidden-worker", ["hidden-queue"], start=True)
    ledger.fail(held.fence, {"type": "HiddenError", "message": HIDDEN}, reason_code="timeout", retryable=False)
    ledger.enqueue("hidden-kind", queue="hidden-queue", depends_on=[job.id], on_dependency_failure="wait")
    ledger.enqueue("k", queue="mail")
    ledger.enqueue("hidden-kind", queue="hidden-queue", depends_on=[3])
    ledger.sign_in("hidden-worker", body={"queues": ["hidden-queue"]})
    ledger.pause("hidden-queue", reason=HIDDEN)
    ledger.set_schedule(HIDDEN, "hidden-kind", {"text": HIDDEN}, every="1h", queue="hidden-queue")
    ledger.group(HIDDEN, then={"kind": "hidden-kind", "args": {"text": HIDDEN}, "queue": "hidden-queue"})
    ledger.enqueue("hidden-kind", {"text": HIDDEN}, queue="hidden-queue", group=HIDDEN)
    ledger.set_limit("api", concurrent=1, by="args.text")
    ledger.set_queue("hidden-queue", weights={"hidden-tenant": 2})
    ledger.enqueue("hidden-kind", {"text": HIDDEN}, queue="hidden-queue", limits=["api"], for_worker="hidden-worker")
    HistoryService(ledger, "test").tick()


def _path(route: Route) -> str:
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "x"), route.path)
    path = path.replace("/limits/hidden", "/limits/api")
    more = {
        "/v1/wake": "?wait_s=0",
        "/v1/until-ready": "?queues=hidden-queue",
        "/v1/firings": "?name=hidden",
        "/v1/jobs": "?kind=hidden-kind",
        "/v1/dead-letters": "?kind=hidden-kind",
    }
    return path + more.get(path, "")


@pytest.mark.parametrize("role", ["reader", "worker", "operator", "admin"])
def test_no_route_tells_of_a_queue_that_a_token_does_not_cover(served: RunningServer, ledger: Ledger, role: str) -> None:
    _fill(ledger)
    client = served.client(role, "eye", queues=["mail"], act_as=[])
    for route in ROUTES:
        if route.method != "GET" or route.path in STREAMS:
            continue
        for path in {_path(route), _path(route).replace("/jobs/1", "/jobs/3")}:
            answer = client.get(path)
            shown = answer.body.decode()
            if answer.status != 200:  # a refusal may repeat the name that was asked for
                shown = shown.replace("hidden-queue", "").replace("'hidden'", "").replace('"hidden"', "")
            assert HIDDEN not in shown.lower(), (path, answer.body)


def test_a_job_of_a_hidden_queue_is_like_one_that_does_not_exist(served: RunningServer, ledger: Ledger) -> None:
    _fill(ledger)
    before = ledger.position()
    for role in ("reader", "client", "operator"):
        client = served.client(role, f"a-{role}", queues=["mail"], act_as=[])
        for route in ROUTES:
            if "{job_id}" not in route.path or (route.path == "/v1/jobs/{job_id}/events" and route.method == "POST"):
                continue
            hidden, absent = (
                client.send(route.method, route.path.replace("{job_id}", number), _body(route)) for number in ("1", "99")
            )
            assert hidden.status == absent.status, (route, hidden.body, absent.body)
            assert _plain(hidden.data) == _plain(absent.data)
    assert ledger.position() == before


def _body(route: Route) -> dict[str, Any] | None:
    """A body that the route takes."""
    fields: dict[str, Any] = {"outcome": "compensated", "queue": "mail", "priority": 1, "reason_code": "timeout", "delay": 1}
    names = () if route.body in (None, dict) else route.body.__struct_fields__  # type: ignore[attr-defined]
    return {name: value for name, value in fields.items() if name in names} if route.body is not None else None


def _plain(problem: dict[str, Any]) -> dict[str, Any]:
    """Return what does not name the request or the job."""
    detail = re.sub(r"\b(1|99)\b", "N", problem["detail"])
    return {"code": problem["code"], "detail": detail, "action": problem["action"]}


@pytest.mark.parametrize("on_failure", ["wait", "dead_letter"])
def test_an_explanation_does_not_name_a_job_of_a_hidden_queue(served: RunningServer, ledger: Ledger, on_failure: Any) -> None:
    shown = ledger.enqueue("k", queue="mail")
    hidden = ledger.enqueue("k", queue="hidden-queue")
    job = ledger.enqueue("k", queue="mail", depends_on=[shown.id, hidden.id], on_dependency_failure=on_failure)
    eye, all_seeing = served.client("operator", "eye", queues=["mail"]), served.client()
    path = f"/v1/jobs/{job.id}/explain?to_claim=true"
    assert "It waits for job 1 (queued), and for a job of a queue that you may not see." in eye.get(path).data["text"]
    assert "2 jobs: 1 (queued), 2 (queued)" in all_seeing.get(path).data["text"]
    before = eye.get(path).data
    ledger.claim("w-1", ["hidden-queue"])
    assert _timeless(eye.get(path).data) == _timeless(before)
    ledger.cancel(hidden.id, hard=True)
    after = eye.get(path).data
    assert f"job replay {hidden.id}" not in str(after["commands"])
    assert "2 (cancelled)" not in after["text"]
    if on_failure == "wait":
        assert _timeless(after) == _timeless(before)
    else:
        assert "It depends on a job of a queue that you may not see" in after["text"]


def _timeless(explanation: dict[str, Any]) -> dict[str, Any]:
    return explanation | {"now": None}


def test_an_explanation_does_not_name_a_hidden_queue_whose_workers_serve_the_kind(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("k", queue="mail")
    ledger.sign_in("w-1", body={"queues": ["hidden-queue"], "kinds": ["k"]})
    path = f"/v1/jobs/{job.id}/explain"
    assert "served in hidden-queue" in served.client().get(path).data["text"]
    assert HIDDEN not in str(served.client("reader", "eye", queues=["mail"]).get(path).data)


def test_a_filter_does_not_reach_a_hidden_queue(served: RunningServer, ledger: Ledger) -> None:
    _fill(ledger)
    before = ledger.position()
    kim = served.client("operator", "kim", queues=["mail"])
    assert kim.post("/v1/batches", {"verb": "move", "jobs": [{"id": 3}], "queue": "hidden-queue"}).status == 403
    [replayed] = kim.post("/v1/batches", {"verb": "replay", "jobs": [{"id": 1}]}).data["answers"]
    assert replayed["problem"]["code"] == "not_found"
    shop = served.client("client", "shop", queues=["mail"])
    assert shop.post("/v1/jobs", {"kind": "k", "queue": "hidden-queue"}).status == 403
    arm = served.client("worker", "arm", queues=["mail"])
    assert arm.get("/v1/until-ready?queues=hidden-queue").status == 403
    assert arm.post("/v1/claims", {"queues": ["hidden-queue"]}).status == 403
    assert arm.post("/v1/tasks/resume", {"queues": ["hidden-queue"]}).status == 403
    assert ledger.position() == before


def test_a_worker_does_not_remove_schedules_of_a_hidden_queue(served: RunningServer, ledger: Ledger) -> None:
    ledger.declare_schedules("shared-kind", {"kept": {"every": "1h", "queue": "hidden-queue"}})
    worker = served.client("worker", "w-7", queues=["open*"])
    refused = worker.send("PUT", "/v1/schedule-declarations/shared-kind", {"schedules": {}})
    assert (refused.status, refused.data["code"]) == (403, "forbidden")
    assert ledger.schedule("kept").queue == "hidden-queue"
    own = {"mine": {"kind": "own-kind", "every": "1h", "queue": "open-1"}}
    assert worker.send("PUT", "/v1/schedule-declarations/own-kind", {"schedules": own}).status == 200


def test_a_schedule_of_a_hidden_queue_is_not_changed(served: RunningServer, ledger: Ledger) -> None:
    _fill(ledger)
    before = ledger.schedule(HIDDEN)
    kim = served.client("operator", "kim", queues=["mail"])
    arm = served.client("worker", "arm", queues=["mail"])
    fields = {"kind": "k", "queue": "mail", "every": "2h"}
    assert kim.send("PUT", f"/v1/schedules/{HIDDEN}", fields).status == 403
    assert (
        arm.send("PUT", "/v1/schedule-declarations/k", {"schedules": {HIDDEN: {**fields, "queue": "hidden-queue"}}}).status == 403
    )
    for action in ("pause", "resume", "run"):
        assert kim.post(f"/v1/schedules/{HIDDEN}/{action}").status == 404
    assert kim.send("DELETE", f"/v1/schedules/{HIDDEN}").status == 404
    assert kim.get(f"/v1/firings?name={HIDDEN}").status == 404
    assert ledger.schedule(HIDDEN) == before
    assert kim.send("PUT", "/v1/schedules/own", fields).status == 200
    assert kim.send("PUT", "/v1/schedules/own", fields).status == 200


def test_a_group_that_waits_for_hidden_groups_does_not_name_them(served: RunningServer, ledger: Ledger) -> None:
    ledger.group("year", then={"kind": "k", "queue": "mail"})
    ledger.group("seen", then={"kind": "k", "queue": "mail", "group": "year"})
    kim = served.client("operator", "kim", queues=["mail"])
    refused = kim.post("/v1/groups/year/close")
    assert (refused.status, refused.data["code"], refused.data["context"]["waits_for"]) == (409, "conflict", ["seen"])
    ledger.group(HIDDEN, then={"kind": "k", "queue": "hidden-queue", "group": "year"})
    refused = kim.post("/v1/groups/year/close")
    assert (refused.status, refused.data["code"]) == (409, "conflict")
    assert HIDDEN not in str(refused.data)
    assert served.client().post("/v1/groups/year/close").data["context"]["waits_for"] == [HIDDEN, "seen"]


def _all_pages(client: Client, path: str, field: str) -> list[dict[str, Any]]:
    """Read a list page by page, as long as there is a next one."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = client.get(f"{path}&after={after}").data
        found += page[field]
        after = page["next_after"]
    return found


def test_pages_of_events_go_on_after_a_hidden_queue(served: RunningServer, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "queue": "other"}] * 7 + [{"kind": "k", "queue": "mail"}] * 2)
    eye = served.client("reader", "eye", queues=["mail"])
    for query in ("", "&types=enqueued", "&stable=true"):
        assert [event["job_id"] for event in _all_pages(eye, f"/v1/events?limit=3{query}", "events")] == [8, 9]


def test_pages_are_filled_up_after_names_of_hidden_queues(
    served: RunningServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.core.limits.PAGE_MAX", 2)
    for number, queue in enumerate(["other", "other", "other", "mail", "other", "mail", "mail", "other"]):
        ledger.group(f"g{number}", then={"kind": "k", "queue": queue})
        ledger.set_schedule(f"s{number}", "k", every="1h", queue=queue)
    eye = served.client("reader", "eye", queues=["mail"])
    for what, letter in (("groups", "g"), ("schedules", "s")):
        pages = [eye.get(f"/v1/{what}?limit=2{after}").data[what] for after in ("", f"&after={letter}5", f"&after={letter}6")]
        assert [[one["name"] for one in page] for page in pages] == [[f"{letter}3", f"{letter}5"], [f"{letter}6"], []]


def test_jobs_of_a_group_go_on_after_hidden_ones(served: RunningServer, ledger: Ledger) -> None:
    ledger.group("own", then={"kind": "k", "queue": "mail"})
    ledger.enqueue_many([{"kind": "k", "queue": queue, "group": "own"} for queue in ("other", "other", "other", "mail", "mail")])
    eye = served.client("reader", "eye", queues=["mail"])
    assert [job["id"] for job in _all_pages(eye, "/v1/groups/own/jobs?limit=2", "jobs")] == [4, 5]


HOLDER_VERBS = ("start", "heartbeat", "complete", "fail", "release", "acknowledge-cancel", "stall", "resume", "gate")


def test_a_holders_routes_do_not_tell_of_hidden_jobs(served: RunningServer, ledger: Ledger) -> None:
    job = ledger.enqueue("k", queue="hidden-queue")
    ledger.claim("w-1", ["hidden-queue"])
    worker = served.client("worker", "w-7", queues=["open*"])
    fence = {"attempt": 1, "token": "x" * 22}
    for verb in HOLDER_VERBS:
        body = {"fence": fence, "error": "no"} if verb == "fail" else {"fence": fence}
        found = [worker.post(f"/v1/jobs/{id_}/{verb}", body) for id_ in (job.id, 999_999)]
        assert [(one.status, one.data["code"]) for one in found] == [(404, "not_found")] * 2, verb
        assert "w-1" not in str(found[0].data)
    many = worker.post("/v1/heartbeats", {"fences": [{"job_id": job.id, **fence}]}).data["answers"]
    many += worker.post("/v1/completions", {"completions": [{"fence": {"job_id": job.id, **fence}}]}).data["answers"]
    many += worker.post("/v1/completions", {"completions": [{"fence": {"job_id": job.id, **fence}}], "settle": True}).data[
        "answers"
    ]
    assert [one["problem"]["code"] for one in many] == ["not_found"] * 3


def test_a_job_cannot_wait_for_a_hidden_one(served: RunningServer, ledger: Ledger) -> None:
    hidden = ledger.enqueue("k", queue="hidden-queue")
    client = served.client("client", "c-7", queues=["open*"])
    one = {"kind": "k", "queue": "open-1", "depends_on": [hidden.id]}
    assert client.post("/v1/jobs", one).status == 404
    assert client.post("/v1/jobs/batch", {"jobs": [{"kind": "k", "queue": "open-1", "ref": "a"}, one]}).status == 404
    refs = [{"kind": "k", "queue": "open-1", "ref": "a"}, {"kind": "k", "queue": "open-1", "depends_on": ["a"]}]
    assert client.post("/v1/jobs/batch", {"jobs": refs}).status == 201
    operator = served.client("operator", "o-7", queues=["open*"])
    assert operator.send("PUT", "/v1/schedules/s", {**one, "every": "1h"}).status == 404


def test_a_group_of_hidden_queues_does_not_exist(served: RunningServer, ledger: Ledger) -> None:
    then = {"kind": "k", "queue": "hidden-queue"}
    ledger.group("hidden", then=then)
    ledger.group("bare")
    client = served.client("operator", "c-7", queues=["open*"])
    own = {"then": {"kind": "k", "queue": "open-1"}}
    assert client.send("PUT", "/v1/groups/own", own).status == 200
    assert client.send("PUT", "/v1/groups/own", own).status == 200
    ledger.enqueue("k", queue="hidden-queue", group="own")
    for name in ("hidden", "bare"):
        assert client.get(f"/v1/groups/{name}").status == 404
        assert client.get(f"/v1/groups/{name}/jobs").status == 404
        assert client.send("PUT", f"/v1/groups/{name}", own).status == 403
        for action in ("close", "cancel", "replay"):
            assert client.post(f"/v1/groups/{name}/{action}").status == 404
        one = {"kind": "k", "queue": "open-1", "group": name}
        assert client.post("/v1/jobs", one).status == 404
        assert client.post("/v1/jobs/batch", {"jobs": [one]}).status == 404
        assert client.send("PUT", "/v1/schedules/s", {**one, "every": "1h"}).status == 404
        assert client.send("PUT", "/v1/groups/next", {"on_dead": one}).status == 404
        assert ledger.get_group(name).total == 0
    assert client.send("PUT", "/v1/groups/next", {"then": then}).status == 403
    assert [group["name"] for group in client.get("/v1/groups").data["groups"]] == ["own"]
    assert client.post("/v1/jobs", {"kind": "k", "queue": "open-1", "group": "own"}).status == 201
    assert [job["queue"] for job in client.get("/v1/groups/own/jobs").data["jobs"]] == ["open-1"]
    for action in ("cancel", "replay"):
        assert client.post(f"/v1/groups/own/{action}").status == 403
    assert client.post("/v1/groups/own/close").status == 200
    assert ledger.get_group("own").live == 2


def test_an_admin_of_some_queues_does_nothing_to_the_whole_ledger(served: RunningServer) -> None:
    admin = served.client("admin", "a-7", queues=["open*"])
    for method, path in (("GET", "/v1/export"), ("GET", "/v1/tokens"), ("POST", "/v1/tokens"), ("POST", "/v1/prune")):
        body = {"role": "reader", "name": "r"} if path == "/v1/tokens" and method == "POST" else {} if method == "POST" else None
        assert admin.send(method, path, body).status == 403, path


def test_a_preview_takes_seconds_and_ends_with_the_calendar(served: RunningServer) -> None:
    reader = served.client("reader", "r-7")
    assert len(reader.get("/v1/firings?every=5&count=3").data["times"]) == 3
    assert reader.get("/v1/firings?cron=*+*+*+*+*&start=9999-12-31T23:59:59Z").data == {"times": []}
