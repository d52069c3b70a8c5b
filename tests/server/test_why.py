"""Lists of jobs say why queued jobs wait, in the words of their explanations."""

from typing import Any

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import running
from tests.support.server import Client, RunningServer

QUICK: dict[str, Any] = {"policy": {"attempts_max": 3, "backoff_base": "1s"}}


def waiting_jobs(ledger: Ledger, clock: ManualClock) -> list[Any]:
    """Make jobs that wait for every reason."""
    made: list[Any] = [ledger.enqueue("k", queue="unserved", delay=delay) for delay in (None, "1h")]
    ledger.sign_in("w-1", body={"queues": ["q", "line", "paused"], "kinds": ["k", "other"], "labels": []})
    first = ledger.enqueue("k", queue="q")
    made += [
        first,
        ledger.enqueue("k", queue="q"),
        ledger.enqueue("k", queue="q", priority=7),
        ledger.enqueue("unserved", queue="q"),
    ]
    made += [ledger.enqueue("k", queue="q", depends_on=[first, made[0]], delay="2h")]
    broken = ledger.enqueue("k", queue="elsewhere")
    made += [ledger.enqueue("k", queue="q", depends_on=[broken], on_dependency_failure="wait")]
    ledger.cancel(broken.id)
    ledger.pause("paused", reason="reindexing", actor="kim")
    made += [ledger.enqueue("k", queue="paused"), ledger.enqueue("k", queue="paused", delay="1h")]
    ledger.set_limit("smtp", concurrent=1, by="args.tenant")
    ledger.set_limit("rate", rate="1/1h")
    ledger.set_limit("wide", concurrent=2)
    made += [ledger.enqueue("k", {"tenant": "acme"}, queue="line", limits={"smtp": 1}) for _ in range(2)]
    made += [ledger.enqueue("k", queue="line", limits={"wide": 2})]
    ledger.set_limit("wide", concurrent=1)
    made += [ledger.enqueue("k", queue="line", limits={"rate": 1}, partition="p") for _ in range(3)]
    made += [ledger.enqueue("k", queue="line", requires=["gpu"]), ledger.enqueue("k", queue="line", for_worker="w-9")]
    for _ in range(2):
        key: dict[str, Any] = {"dedupe_key": "later", "on_duplicate": "postpone", "delay": "5m"}
        made += [ledger.enqueue("k", queue="q", **key)]
        clock.advance(1)
    retried = running(ledger, queue="again", **QUICK)
    ledger.fail(retried.fence, "no luck", retry_after=60)
    return [*made, retried]


def test_a_list_says_why_queued_jobs_wait(served: RunningServer, ledger: Ledger, clock: ManualClock, admin: Client) -> None:
    made = waiting_jobs(ledger, clock)
    running(ledger, queue="held")
    situations = set()
    found = admin.get("/v1/jobs?why=true&fields=brief").data
    queued = {job["id"] for job in found["jobs"] if job["status"] == "queued"}
    assert queued >= {job.id for job in made if ledger.get(job.id).status == "queued"}
    assert {int(id_) for id_ in found["why"]} == queued
    for id_, why in found["why"].items():
        explained = ledger.explain(int(id_))
        situations.add(why["code"])
        assert explained.why_not_running is not None
        assert why["code"] == explained.situation
        assert why["words"] == explained.why_not_running.words.replace(" Attempt 1, by w-1, failed: no luck.", "")
        assert "no luck" not in why["words"]
    assert situations >= {
        "no_worker", "scheduled", "ready", "queued_behind", "waits_for_dependency", "dependency_failed", "queue_paused",
        "limit_too_small", "no_worker_with_labels", "postponed", "backoff",
    }  # fmt: skip
    assert "why" not in admin.get("/v1/jobs").data


def test_the_reason_names_nothing_that_the_reader_may_not_see(served: RunningServer, ledger: Ledger) -> None:
    secret = ledger.enqueue("k", queue="secret")
    shown = ledger.enqueue("k", queue="q", depends_on=[secret])
    ledger.sign_in("w-1", body={"queues": ["secret"], "kinds": ["k"]})
    found = served.client("reader", "eye", queues=["q"]).get("/v1/jobs?why=true").data
    assert found["why"].keys() == {str(shown.id)}
    words = found["why"][str(shown.id)]["words"]
    assert words.startswith("It waits for a job of a queue that you may not see.")
    assert "secret" not in words
