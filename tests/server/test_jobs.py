"""Jobs over HTTP: enqueue, read, cancel, and what a worker does with one."""

import json
from typing import Any

from holdfast import Ledger
from tests.support.server import Client, RunningServer


def _claim(worker: Client, **body: Any) -> dict[str, Any]:
    answer = worker.post("/v1/claims", {"queues": ["default"], "start": True, **body})
    assert answer.status == 200, answer.body
    [job] = answer.data["jobs"]
    return job


def test_a_job_is_enqueued_claimed_renewed_and_completed(served: RunningServer, worker: Client, ledger: Ledger) -> None:
    client = served.client("client", "shop")
    made = client.post("/v1/jobs", {"kind": "greet", "args": {"name": "Ada"}})
    assert (made.status, made.data["is_new"]) == (201, True)
    assert made.headers["location"] == f"/v1/jobs/{made.data['job']['id']}"
    held = _claim(worker)
    fence, path = held["fence"], f"/v1/jobs/{held['id']}"
    assert held["args"] == {"name": "Ada"} and held["policy"]["lease_ttl_ms"] == 60_000
    beat = worker.post(f"{path}/heartbeat", {"fence": fence, "stage": "writing", "progress": 1})
    assert (beat.status, beat.data["beat"]["cancel_requested"]) == (200, False)
    done = worker.post(f"{path}/complete", {"fence": fence, "result": {"text": "Hello"}})
    assert (done.status, done.data["change"]["status"], done.headers["etag"]) == (200, "succeeded", '"5"')
    assert ledger.get(held["id"]).result == {"text": "Hello"}
    assert [event.actor for event in ledger.events(held["id"])] == ["client:shop"] + ["worker:w-1#boot1"] * 4


def test_json_keeps_its_bytes(admin: Client, worker: Client) -> None:
    raw = b'{"kind":"k","args":{"price":1.10,"text":"\\u00e4"}}'
    made = admin.send("POST", "/v1/jobs", raw=raw)
    assert b'"args":{"price":1.10,"text":"\\u00e4"}' in made.body
    answer = worker.send("POST", "/v1/claims", {"queues": ["default"], "start": True})
    assert b'"args":{"price":1.10,"text":"\\u00e4"}' in answer.body
    fence = json.dumps(answer.data["jobs"][0]["fence"]).encode()
    worker.send("POST", "/v1/jobs/1/complete", raw=b'{"fence":' + fence + b',"result":{"n":2.50}}')
    assert b'"result":{"n":2.50}' in admin.get("/v1/jobs/1").body


def test_a_repeated_key_gets_the_first_answer(admin: Client, ledger: Ledger) -> None:
    first = admin.post("/v1/jobs", {"kind": "k", "args": {"n": 1}}, Idempotency_Key="order-17")
    again = admin.send("POST", "/v1/jobs", raw=b'{ "kind": "k", "args": {"n":1} }', Idempotency_Key="order-17")
    assert (first.status, first.data["job"]["id"]) == (201, again.data["job"]["id"])
    assert len(ledger.list()) == 1
    other = admin.post("/v1/jobs", {"kind": "k", "args": {"n": 2}}, Idempotency_Key="order-17")
    assert (other.status, other.data["code"]) == (422, "idempotency_conflict")


def test_a_key_is_drawn_and_answered(admin: Client) -> None:
    answer = admin.post("/v1/jobs", {"kind": "k"})
    assert len(answer.headers["idempotency-key"]) == 16
    repeated = admin.post("/v1/jobs", {"kind": "k"}, Idempotency_Key=answer.headers["idempotency-key"])
    assert repeated.data["job"]["id"] == answer.data["job"]["id"]


def test_a_revision_that_is_not_the_expected_one_is_412(admin: Client) -> None:
    admin.post("/v1/jobs", {"kind": "k"})
    refused = admin.post("/v1/jobs/1/cancel", {"reason": "late"}, If_Match='"9"')
    assert (refused.status, refused.data["code"], refused.data["context"]["rev"]) == (412, "conflict", 1)
    assert admin.post("/v1/jobs/1/cancel", {"reason": "now"}, If_Match='"1"').status == 200
    assert admin.post("/v1/jobs/1/cancel", {}, If_Match='W/"1"').status == 400


def test_a_job_that_has_not_changed_is_304(admin: Client) -> None:
    admin.post("/v1/jobs", {"kind": "k"})
    tag = admin.get("/v1/jobs/1").headers["etag"]
    same = admin.get("/v1/jobs/1", If_None_Match=tag)
    assert (same.status, same.body) == (304, b"")


def test_many_jobs_are_made_or_none(admin: Client, ledger: Ledger) -> None:
    made = admin.post("/v1/jobs/batch", {"jobs": [{"kind": "a", "ref": "first"}, {"kind": "b", "depends_on": ["first"]}]})
    assert (made.status, made.data["new"]) == (201, 2)
    assert ledger.get(made.data["job_ids"][1]).depends_on == (made.data["job_ids"][0],)
    refused = admin.post("/v1/jobs/batch", {"jobs": [{"kind": "a"}, {"kind": ""}]})
    assert (refused.status, refused.data["context"]["item"]) == (400, 1)
    assert len(ledger.list()) == 2
    full = admin.post("/v1/jobs/batch?return=jobs", {"jobs": [{"kind": "a"}]})
    assert full.data["jobs"][0]["kind"] == "a"


def test_a_stale_fence_is_refused(admin: Client, served: RunningServer, worker: Client) -> None:
    admin.post("/v1/jobs", {"kind": "k"})
    fence = _claim(worker)["fence"]
    worker.post("/v1/jobs/1/release", {"fence": fence})
    refused = worker.post("/v1/jobs/1/complete", {"fence": fence, "result": 1})
    assert (refused.status, refused.data["code"], refused.data["retryable"]) == (409, "fence_lost", False)
    assert refused.headers["content-type"] == "application/problem+json"
    assert fence["token"].encode() not in refused.body


def test_the_fence_of_another_worker_is_refused(admin: Client, served: RunningServer, worker: Client) -> None:
    admin.post("/v1/jobs", {"kind": "k"})
    fence = _claim(worker)["fence"]
    other = served.client("worker", "w-2")
    assert other.post("/v1/jobs/1/complete", {"fence": fence}).status == 403
    refused = other.post("/v1/jobs/1/complete", {"fence": {"attempt": 1, "token": "0" * 32}})
    assert (refused.status, refused.data["code"]) == (409, "fence_lost")


HOLDER_ROUTES = ("start", "heartbeat", "complete", "release", "acknowledge-cancel", "stall", "resume", "gate")


def test_a_worker_cannot_use_the_secret_of_another_workers_fence(served: RunningServer, worker: Client, ledger: Ledger) -> None:
    """Also if it leaves out the name of the other worker, or gives its own instead."""
    ledger.enqueue_many([{"kind": "k"}] * 2)
    jobs = worker.post("/v1/claims", {"queues": ["default"], "limit": 2, "start": True}).data["jobs"]
    thief = served.client("worker", "w-2").acting(Holdfast_Incarnation="boot1")
    before = ledger.position()
    for names in ({}, {"worker": "w-2"}, {"worker": "w-2", "incarnation": "boot1"}):
        fences = [{"job_id": job["id"], "attempt": 1, "token": job["fence"]["token"], **names} for job in jobs]
        for route in HOLDER_ROUTES:
            refused = thief.post(f"/v1/jobs/{jobs[0]['id']}/{route}", {"fence": fences[0]})
            assert (refused.status, refused.data["code"]) == (409, "fence_lost"), route
        assert thief.post(f"/v1/jobs/{jobs[0]['id']}/fail", {"fence": fences[0], "error": "e"}).status == 409
        beats = thief.post("/v1/heartbeats", {"fences": fences, "beats": [{"fence": fences[0], "stage": "s"}]}).data["answers"]
        for settle in (False, True):
            body = {"completions": [{"fence": fence} for fence in fences], "settle": settle}
            beats += thief.post("/v1/completions", body).data["answers"]
        assert [one["problem"]["code"] for one in beats] == ["fence_lost"] * 7
    assert ledger.position() == before
    acting = served.client("operator", "kim", act_as=["worker:w-1"]).acting(Holdfast_Actor="worker:w-1#boot1")
    for holder, job in ((worker, jobs[0]), (acting, jobs[1])):
        fence = {"attempt": 1, "token": job["fence"]["token"]}
        assert holder.post(f"/v1/jobs/{job['id']}/complete", {"fence": fence}).status == 200
    assert {event.actor for event in ledger.events(types=["succeeded"])} == {"worker:w-1#boot1"}


def test_lists_have_pages(admin: Client) -> None:
    admin.post("/v1/jobs/batch", {"jobs": [{"kind": "k"}] * 5})
    first = admin.get("/v1/jobs?limit=2").data
    rest = admin.get(f"/v1/jobs?limit=10&after={first['next_after']}").data
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == [1, 2, 3, 4, 5]
    assert rest["next_after"] is None
    assert [job["args"] for job in admin.get("/v1/jobs?status=queued&fields=brief").data["jobs"]] == [None] * 5


def test_wrong_requests_are_refused_and_change_nothing(admin: Client, ledger: Ledger) -> None:
    def refusal(body: bytes, status: int = 400, **headers: str) -> dict[str, Any]:
        answer = admin.send("POST", "/v1/jobs", raw=body, **headers)
        assert answer.status == status, answer.body
        return answer.data

    assert refusal(b'{"kind":"a","kind":"b"}')["code"] == "validation_error"
    assert "kin" in refusal(b'{"kin":"a"}')["detail"]
    for value in (b"NaN", b"1e999", b"9007199254740993", b'"\\ud800"', b"[" * 10_000, b"0" * 5_000, b"\xff", b'{"a":1,"a":2}'):
        refusal(b'{"kind":"k","args":{"v":' + value + b"}}", 413 if value.startswith(b"[[") else 400)
    for whole in (b"", b"[]", b"null", b"{", '{"kind":"k"}'.encode("utf-16"), b"\xef\xbb\xbf{}"):
        refusal(whole)
    assert refusal(b'{"kind":"k"}', 415, Content_Type="text/plain")["code"] == "unsupported_media_type"
    assert refusal(b'{"kind":"k"}', 415, Content_Encoding="br")["code"] == "unsupported_media_type"
    assert refusal(b'{"kind":"' + b"k" * 3_000_000 + b'"}', 413)["code"] == "limit_exceeded"
    assert refusal(b'{"kind":"k"}', Idempotency_Key="a\x7fb")["code"] == "validation_error"
    assert admin.get("/v1/jobs?limit=0").data["code"] == "limit_exceeded"
    assert admin.get("/v1/jobs?colour=red").status == 400
    assert admin.get("/v1/jobs?limit=1&limit=2").status == 400
    assert admin.get("/v1/jobs/99999").status == 404
    assert admin.get("/v1/jobs/x").status == 404
    assert admin.get("/v1/jobs/").status == 404
    assert ledger.list() == []


def test_a_brief_list_has_one_line_of_each_error(admin: Client, worker: Client) -> None:
    admin.post("/v1/jobs", {"kind": "greet", "args": {"text": "x" * 1000}, "policy": {"attempts_max": 1}})
    fence = worker.post("/v1/claims", {"queues": ["default"], "start": True}).data["jobs"][0]["fence"]
    worker.post("/v1/jobs/1/fail", {"fence": fence, "error": {"type": "Oops", "message": "a\nb", "traceback": "x" * 1000}})

    [job] = admin.get("/v1/jobs?fields=brief").data["jobs"]

    assert (job["args"], job["error"], job["last_error"]) == (None, None, "Oops: a")
    assert job["dead_letter"]["last_error"] == "Oops: a"


def test_stable_events_are_read_without_other_filters(admin: Client) -> None:
    admin.post("/v1/jobs", {"kind": "k"})
    assert len(admin.get("/v1/events?stable=true").data["events"]) == 1
    for path in ("/v1/events?types=enqueued", "/v1/events?since=2026-01-01T00:00:00Z", "/v1/events?correlation_id=a"):
        assert admin.get(f"{path}&stable=true").status == 400
    assert admin.get("/v1/jobs/1/events?stable=true").status == 400
