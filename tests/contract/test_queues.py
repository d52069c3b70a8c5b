"""`ledger.queues`: counts, waiting times, and pauses with actor and reason."""

import pytest

from holdfast import Ledger, ValidationError
from holdfast.testing import ManualClock
from tests.contract import builders
from tests.support.near import near


def test_a_queue_has_the_time_since_when_its_first_job_is_ready(ledger: Ledger, clock: ManualClock):
    first = builders.queued(ledger, queue="crawl")
    ready_since = clock.now()
    clock.advance(5)
    builders.queued(ledger, queue="crawl", kind="other")
    builders.queued(ledger, queue="later", delay=60)
    crawl, later = ledger.queues()
    assert (crawl.name, crawl.counts, crawl.ready_since, crawl.paused_at) == ("crawl", {"queued": 2}, ready_since, None)
    assert (later.name, later.ready_since) == ("later", None)
    ledger.claim_job(first.id, "w")
    assert ledger.queues()[0].ready_since == clock.now()


def test_the_actor_and_reason_of_a_pause_are_kept_until_it_ends(ledger: Ledger, clock: ManualClock):
    ledger.pause("crawl", reason="reindexing", actor="ada")
    [found] = ledger.queues()
    assert (found.name, found.counts, found.paused_at) == ("crawl", {}, clock.now())
    assert (found.paused_by, found.pause_reason) == ("ada", "reindexing")
    ledger.pause("crawl", actor="bob")
    assert (ledger.queues()[0].paused_by, ledger.queues()[0].pause_reason) == ("bob", None)
    ledger.unpause("crawl")
    assert ledger.queues() == []


def test_the_reason_is_part_of_the_request(ledger: Ledger, clock: ManualClock):
    ledger.pause("a", reason="why", request_id="r")
    ledger.unpause("a")
    ledger.pause("a", reason="why", request_id="r")
    assert ledger.paused() == {}
    with pytest.raises(ValidationError):
        ledger.pause("a", reason=7)  # type: ignore[arg-type]


def test_the_reason_of_a_pause_is_shown(ledger: Ledger):
    job = builders.queued(ledger, queue="crawl")
    ledger.pause("crawl", reason="reindexing", actor="ada")
    assert "by ada: reindexing" in ledger.explain(job.id).text
    [words] = [finding.words for finding in ledger.diagnose().findings if finding.code == "queue_paused"]
    assert words.endswith("by ada: reindexing")


def test_queues_are_the_same_whether_a_service_has_counted_or_not(ledger: Ledger, clock: ManualClock):
    for kind in ("a", "b"):
        ledger.enqueue(kind, queue="mail")
        clock.advance(10)
    ledger.cancel(ledger.enqueue("a", queue="crawl").id)
    ledger.pause("robots", reason="rain")
    exact = ledger.queues()
    assert [(queue.name, queue.counts) for queue in exact] == [
        ("crawl", {"cancelled": 1}),
        ("mail", {"queued": 2}),
        ("robots", {}),
    ]
    while near(ledger).history_writer.advance(100):
        pass
    assert ledger.queues() == exact
    ledger.enqueue("a", queue="crawl")
    assert ledger.queues()[0].counts == {"cancelled": 1, "queued": 1}
