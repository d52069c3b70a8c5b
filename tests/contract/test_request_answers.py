"""Rule 6: which answers are kept for a repetition, and for how long."""

from datetime import timedelta

from holdfast import HoldfastError, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, claimed, held, queued, refused_without_trace, running, trace, types

# Claims


def test_a_repeated_claim_returns_the_jobs_still_held_in_the_same_order(ledger: Ledger):
    for priority in (1, 2, 3):
        queued(ledger, queue="a", priority=priority)
    first = ledger.claim(WORKER, ["a"], limit=2, request_id="r-1")
    again = ledger.claim(WORKER, ["a"], limit=2, request_id="r-1")
    assert [job.fence for job in again] == [job.fence for job in first]
    assert ledger.counts() == {"a": {"claimed": 2, "queued": 1}}


def test_a_repeated_claim_leaves_out_jobs_that_are_no_longer_held(ledger: Ledger):
    queued(ledger, queue="a")
    queued(ledger, queue="a")
    first = ledger.claim(WORKER, ["a"], limit=2, start=True, request_id="r-1")
    ledger.complete(held(first[0]))
    assert [job.id for job in ledger.claim(WORKER, ["a"], limit=2, start=True, request_id="r-1")] == [first[1].id]


def test_a_repeated_claim_with_another_body_is_a_conflict(ledger: Ledger):
    queued(ledger, queue="a")
    ledger.claim(WORKER, ["a"], request_id="r-1")
    for other in ({"limit": 2}, {"start": True}, {"kinds": ["x"]}, {"queues": ["b"]}):
        with refused_without_trace(ledger, "idempotency_conflict"):
            ledger.claim(WORKER, **{"queues": ["a"], "request_id": "r-1"} | other)


def test_an_empty_claim_is_not_kept(ledger: Ledger):
    assert ledger.claim(WORKER, ["a"], request_id="r-1") == []
    made = queued(ledger, queue="a")
    assert [job.id for job in ledger.claim(WORKER, ["a"], request_id="r-1")] == [made.id]


def test_a_repeated_claim_by_id_returns_the_fence_again(ledger: Ledger):
    made = queued(ledger)
    first = ledger.claim_job(made.id, WORKER, request_id="r-1")
    assert ledger.claim_job(made.id, WORKER, request_id="r-1").fence == first.fence


def test_a_repeated_claim_by_id_returns_the_fence_also_when_it_is_lost(ledger: Ledger):
    made = queued(ledger)
    first = ledger.claim_job(made.id, WORKER, request_id="r-1")
    ledger.release(first.fence)
    assert ledger.claim_job(made.id, WORKER, request_id="r-1") == first
    ledger.claim_job(made.id, WORKER, request_id="r-2")
    again = ledger.claim_job(made.id, WORKER, request_id="r-1")
    assert again == first
    with refused_without_trace(ledger, "fence_lost"):
        ledger.start(again.fence)


# Refusals and batches


def test_refusals_are_not_kept(ledger: Ledger):
    made = claimed(ledger)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.complete(made.fence, 1, request_id="r-1")
    ledger.start(made.fence)
    assert ledger.complete(made.fence, 2, request_id="r-1").status == "succeeded"


def test_a_batch_of_completions_is_repeated_as_a_whole(ledger: Ledger):
    good, bad = running(ledger), claimed(ledger)
    batch = [(good.fence, 1), (bad.fence, 2)]
    first = ledger.complete_many(batch, request_id="r-1")
    before = trace(ledger)
    again = ledger.complete_many(batch, request_id="r-1")
    assert again[0] == first[0]
    assert [getattr(answer, "code", None) for answer in again] == [None, "invalid_transition"]
    assert trace(ledger) == before


def test_another_batch_under_the_same_id_is_refused_item_by_item(ledger: Ledger):
    first, second = running(ledger), running(ledger)
    ledger.complete_many([(first.fence, 1)], request_id="r-1")
    [answer] = ledger.complete_many([(second.fence, 1)], request_id="r-1")
    assert isinstance(answer, HoldfastError)
    assert answer.code == "idempotency_conflict"
    assert ledger.get(second.id).status == "running"


def test_a_batch_of_beats_has_an_answer_for_each(ledger: Ledger):
    jobs = [running(ledger), queued(ledger), claimed(ledger)]
    answers = ledger.heartbeat_many([made.fence for made in jobs])
    assert [getattr(answer, "code", "beat") for answer in answers] == ["beat", "fence_lost", "beat"]
    assert types(ledger, jobs[0].id)[-1] == types(ledger, jobs[2].id)[-1] == "heartbeat"


def test_one_fence_may_beat_twice_in_a_batch(ledger: Ledger):
    made = running(ledger)
    first, second = ledger.heartbeat_many([made.fence, made.fence])
    assert (first.rev, second.rev) == (4, 5)  # type: ignore[union-attr]
    assert ledger.check(made.id) == []


# Kept answers


def test_events_of_the_sweep_have_a_request_id(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(31)
    ledger.sweep()
    assert all(event.request_id is not None for event in ledger.events(made.id)[-2:])


def test_the_event_has_the_request_id(ledger: Ledger):
    made = running(ledger)
    ledger.complete(made.fence, request_id="r-1")
    assert ledger.events(made.id)[-1].request_id == "r-1"


def test_answers_are_kept_until_they_are_pruned(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.assist(made.id, request_id="r-1")
    clock.advance(86_400)
    assert ledger.prune(requests_before=clock.now() - timedelta(days=1))["requests"] >= 0
    assert ledger.assist(made.id, request_id="r-1").phase == "assisted"
    clock.advance(1)
    assert ledger.prune(requests_before=clock.now() - timedelta(days=1))["requests"] >= 1
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.assist(made.id, request_id="r-1")


def test_a_completion_is_recognised_even_after_its_answer_was_pruned(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    first = ledger.complete(made.fence, 1, request_id="r-1")
    clock.advance(1)
    ledger.prune(requests_before=clock.now())
    again = ledger.complete(made.fence, 1, request_id="r-1")
    assert (again.rev, again.status) == (first.rev, first.status)
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.complete(made.fence, 2, request_id="r-1")


# Queues and policies


def test_a_repeated_pause_does_not_pause_again(ledger: Ledger):
    ledger.pause("a", request_id="r-1")
    ledger.unpause("a")
    ledger.pause("a", request_id="r-1")
    assert ledger.paused() == {}


def test_a_repeated_policy_does_not_undo_a_later_one(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2, request_id="r-1")
    ledger.set_policy("walk", attempts_max=3)
    ledger.set_policy("walk", attempts_max=2, request_id="r-1")
    assert ledger.get(claimed(ledger, kind="walk").id).attempts_max == 3


def test_a_pause_of_another_queue_under_the_same_id_is_a_conflict(ledger: Ledger):
    ledger.pause("a", request_id="r-1")
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.pause("b", request_id="r-1")
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.unpause("a", request_id="r-1")
    assert list(ledger.paused()) == ["a"]


def test_another_policy_under_the_same_id_is_a_conflict(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2, request_id="r-1")
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.set_policy("walk", attempts_max=3, request_id="r-1")
    assert ledger.get(claimed(ledger, kind="walk").id).attempts_max == 2
