"""What a dashboard reads, and verbs on many chosen jobs, over HTTP."""

import gzip
import json
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.services import HistoryService
from tests.support.server import Client, RunningServer


def test_the_overview_counts_jobs(served: RunningServer, ledger: Ledger, admin: Client) -> None:
    ledger.enqueue("k", queue="mail")
    ledger.enqueue("k", queue="crawl")
    HistoryService(ledger, "test").tick()

    assert admin.get("/v1/overview").data["counts"] == {"queued": 2}
    reader = served.client("reader", "eye", queues=["mail"])
    part = reader.get("/v1/overview").data
    assert (part["counts"], [queue["name"] for queue in part["queues"]], part["findings"]) == ({"queued": 1}, ["mail"], [])
    assert [(kind["kind"], kind["counts"]) for kind in reader.get("/v1/kinds").data["kinds"]] == [("k", {"queued": 1})]
    assert [(row["queue"], row["n"]) for row in admin.get("/v1/totals").data["rows"]] == [("crawl", 1), ("mail", 1)]
    totals = reader.get("/v1/totals").data
    assert (totals["statuses"], [row["queue"] for row in totals["rows"]]) == ({"queued": 1}, ["mail"])
    assert reader.get("/v1/history").status == 403
    assert reader.get("/v1/history?queue=mail").status == 200
    for queue in ("mail", "crawl", "crawl"):
        ledger.dead_letter(ledger.enqueue("k", queue=queue).id, reason_code="policy_violation")
    for who, seen in ((reader, 1), (admin, 3)):
        found = who.get("/v1/dead-letters/groups").data
        assert ([group["n"] for group in found["groups"]], found["examined"]) == ([seen], seen)
        assert [kind["dead_letters"] for kind in who.get("/v1/kinds").data["kinds"]] == [seen]
        assert sum(queue["dead_letters"] for queue in who.get("/v1/queues").data["queues"]) == seen
    assert reader.get("/v1/overview").data["dead_letters"] == 1
    assert admin.get("/v1/history?metric=wait&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z").data["step_s"] > 0


@pytest.mark.parametrize("path", ["/v1/counts?max_age=1", "/v1/queues?totals=true"])
def test_numbers_are_never_older_than_the_request(admin: Client, path: str) -> None:
    """What an enqueue of the same caller made is counted at once, so there is no parameter for it."""
    for number in (1, 2):
        admin.post("/v1/jobs", {"kind": "index", "queue": "crawl"})
        assert admin.get("/v1/counts").data["counts"] == {"crawl": {"queued": number}}
        assert [one["counts"] for one in admin.get("/v1/queues").data["queues"]] == [{"queued": number}]
    refused = admin.get(path)
    assert (refused.status, refused.data["code"]) == (400, "validation_error")


def test_a_batch_skips_jobs_that_have_changed(served: RunningServer, ledger: Ledger, admin: Client) -> None:
    ids = [ledger.enqueue("k", queue=queue).id for queue in ("mail", "mail", "crawl")]
    ledger.reprioritise(ids[1], 7)
    operator = served.client("operator", "kim", queues=["mail"])

    answers = operator.post("/v1/batches", {"verb": "cancel", "jobs": [{"id": id_, "rev": 1} for id_ in ids]}).data["answers"]

    assert answers[0]["status"] == "cancelled"
    assert [answer["problem"]["code"] for answer in answers[1:]] == ["conflict", "not_found"]
    assert [ledger.get(id_).status for id_ in ids] == ["cancelled", "queued", "queued"]
    replayed = admin.post("/v1/batches", {"verb": "replay", "jobs": [{"id": ids[0]}]}).data["answers"]
    assert replayed == [{"job_id": ids[0], "replay_id": 4, "is_new": True}]
    [whole] = admin.post("/v1/batches?return=jobs", {"verb": "replay", "jobs": [{"id": ids[0]}]}).data["answers"]
    assert (whole["is_new"], whole["job"]["id"], whole["job"]["replay_of"]) == (False, 4, ids[0])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"verb": "complete"}, 400),
        ({"verb": "cancel", "again": True}, 400),
        ({"verb": "dead_letter"}, 400),
        ({"verb": "move"}, 400),
        ({"verb": "replay", "limit": 7}, 400),
        ({}, 400),
    ],
    ids=str,
)
def test_a_wrong_batch_is_refused_as_a_whole(ledger: Ledger, admin: Client, body: dict[str, Any], status: int) -> None:
    job_id = ledger.enqueue("k").id
    assert admin.post("/v1/batches", {**body, "jobs": [{"id": job_id}]}).status == status
    assert len(ledger.events(job_id)) == 1


def test_a_client_cancels_many_jobs_and_does_nothing_else_to_them(served: RunningServer, ledger: Ledger) -> None:
    jobs = [{"id": ledger.enqueue("k").id}]
    client = served.client("client", "shop")
    for verb in ("dead_letter", "discard", "move", "replay", "reprioritise", "requeue", "reschedule"):
        refused = client.post("/v1/batches", {"verb": verb, "jobs": jobs})
        assert (refused.status, refused.data["code"], refused.data["context"]["verb"]) == (403, "forbidden", verb)
    [done] = client.post("/v1/batches", {"verb": "cancel", "jobs": jobs}).data["answers"]
    assert done["status"] == "cancelled"


def test_data_is_compressed_for_those_who_take_that(served: RunningServer, admin: Client) -> None:
    plain = admin.get("/v1/history")
    zipped = admin.get("/v1/history", Accept_Encoding="gzip, br")

    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) == len(zipped.body) < len(plain.body)
    assert json.loads(gzip.decompress(zipped.body))["points"] == plain.data["points"]


def test_short_answers_and_answers_to_changes_are_not_compressed(served: RunningServer, admin: Client) -> None:
    assert "content-encoding" not in admin.get("/v1/now", Accept_Encoding="gzip").headers
    made = admin.post(
        "/v1/tokens", {"role": "reader", "name": "eye", "queues": [f"{n:0>100}" for n in range(20)]}, Accept_Encoding="gzip"
    )
    assert len(made.body) > 1_024
    assert "content-encoding" not in made.headers
