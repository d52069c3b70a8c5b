"""Which job a claim takes, and when."""

from datetime import timedelta

import msgspec
import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    WORKER,
    claim,
    claimed,
    held,
    queued,
    refused_without_trace,
    running,
    running_stalled,
    types,
)


def _ids(ledger: Ledger, queues: list[str], limit: int = 100, **options) -> list[int]:
    return [job.id for job in ledger.claim(WORKER, queues, limit=limit, **options)]


# Claims from queues


def test_queues_are_served_in_the_order_they_are_named(ledger: Ledger):
    a, b = queued(ledger, queue="a"), queued(ledger, queue="b", priority=9)
    assert _ids(ledger, ["a", "b"]) == [a.id, b.id]


def test_the_second_queue_fills_the_rest_of_the_limit(ledger: Ledger):
    b, a = queued(ledger, queue="b"), queued(ledger, queue="a")
    queued(ledger, queue="b")
    assert _ids(ledger, ["a", "b"], limit=2) == [a.id, b.id]


def test_higher_priority_goes_first(ledger: Ledger):
    low, high, plain = (queued(ledger, queue="a", priority=priority).id for priority in (-5, 5, 0))
    assert _ids(ledger, ["a"]) == [high, plain, low]


def test_jobs_of_one_priority_are_claimed_by_their_time(ledger: Ledger, clock: ManualClock):
    late, early = (queued(ledger, queue="a", delay=delay).id for delay in (20, 10))
    clock.advance(30)
    assert _ids(ledger, ["a"]) == [early, late]


def test_jobs_of_one_time_are_claimed_by_their_id(ledger: Ledger):
    ids = [queued(ledger, queue="a").id for _ in range(5)]
    assert _ids(ledger, ["a"]) == ids


def test_a_claim_takes_only_jobs_of_the_given_kinds(ledger: Ledger):
    wanted = [queued(ledger, queue="a", kind=kind).id for kind in ("x", "y", "z")]
    assert _ids(ledger, ["a"], kinds=["x", "z"]) == [wanted[0], wanted[2]]
    assert _ids(ledger, ["a"]) == [wanted[1]]


def test_a_claim_gives_a_lease_and_counts_as_a_beat(ledger: Ledger, clock: ManualClock):
    queued(ledger, queue="a")
    [job] = ledger.claim(WORKER, ["a"])
    assert (job.status, job.phase, job.owner, job.attempt, job.rev) == ("claimed", None, WORKER, 1, 2)
    assert job.claimed_at == job.last_heartbeat_at == clock.now()
    assert job.claim_expires_at == clock.now() + timedelta(seconds=60)


def test_the_claimed_job_equals_the_stored_job(ledger: Ledger):
    made = running(ledger, queue="a", tier="in_home", correlation_id="c", trace_id="t", dedupe_key="d")
    ledger.fail(made.fence, "x", retry_after=0)
    [job] = ledger.claim("w-2", ["a"])
    assert job.record == ledger.get(made.id).record


def test_a_claim_may_start_in_the_same_step(ledger: Ledger):
    made = queued(ledger, queue="a")
    [job] = ledger.claim(WORKER, ["a"], start=True)
    assert (job.status, job.phase, job.rev) == ("running", "executing", 3)
    assert types(ledger, made.id) == ["enqueued", "claimed", "started"]
    assert job.record == ledger.get(made.id).record
    assert ledger.check(made.id) == []


def test_a_claim_takes_no_held_or_finished_job(ledger: Ledger):
    made = running(ledger, queue="a")
    assert _ids(ledger, ["a"]) == []
    ledger.complete(made.fence)
    assert _ids(ledger, ["a"]) == []


# Waiting


@pytest.mark.parametrize("when", [{"delay": 10}, {"delay": "10s"}, {"delay": timedelta(seconds=10)}], ids=str)
def test_a_delayed_job_waits(ledger: Ledger, clock: ManualClock, when):
    made = queued(ledger, queue="a", **when)
    clock.advance(9.999_999)
    assert _ids(ledger, ["a"]) == []
    clock.advance(0.000_001)
    assert _ids(ledger, ["a"]) == [made.id]


def test_a_job_for_later_waits_for_its_time(ledger: Ledger, clock: ManualClock):
    at = clock.now() + timedelta(days=1)
    made = queued(ledger, queue="a", available_at=at)
    assert (ledger.get(made.id).available_at, _ids(ledger, ["a"])) == (at, [])
    clock.advance(86_400)
    assert _ids(ledger, ["a"]) == [made.id]


def test_delay_and_available_at_exclude_each_other(ledger: Ledger, clock: ManualClock):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue("a", delay=1, available_at=clock.now())


# Pausing


def test_nothing_is_claimed_from_a_paused_queue(ledger: Ledger, clock: ManualClock):
    queued(ledger, queue="a")
    other = queued(ledger, queue="b")
    ledger.pause("a")
    assert ledger.paused() == {"a": clock.now()}
    assert _ids(ledger, ["a", "b"]) == [other.id]


def test_jobs_of_an_unpaused_queue_are_claimed_again(ledger: Ledger):
    made = queued(ledger, queue="a")
    ledger.pause("a")
    ledger.unpause("a")
    assert (ledger.paused(), _ids(ledger, ["a"])) == ({}, [made.id])


def test_pausing_does_not_affect_holders(ledger: Ledger):
    made = claimed(ledger, queue="a")
    ledger.pause("a")
    ledger.start(made.fence)
    ledger.heartbeat(made.fence)
    assert held(ledger.claim_job(made.id, WORKER)) == made.fence
    assert ledger.complete(made.fence).status == "succeeded"


# Claims by id


def test_a_silent_lease_of_another_worker_is_stalled_first(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(30.000_001)
    job = ledger.claim_job(made.id, "w-2")
    assert types(ledger, made.id)[-2:] == ["stalled", "claimed"]
    assert (job.owner, job.attempt, job.status) == ("w-2", 2, "claimed")
    assert ledger.check(made.id) == []


def test_a_stalled_job_is_claimable_after_its_resume_window(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    clock.advance(59.999_999)
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(made.id, "w-2")
    assert caught.value.context["why"] == "resume_window"
    clock.advance(0.000_001)
    assert claim(ledger, made.id, "w-2").fence.attempt == 2
    assert ledger.check(made.id) == []


def test_a_silent_holder_keeps_its_job_within_the_resume_window(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=WINDOW)
    clock.advance(31)
    with refused_without_trace(ledger, "not_claimable"):
        ledger.claim_job(made.id, "w-2")
    assert ledger.complete(made.fence).status == "succeeded"


def test_a_job_in_backoff_is_not_claimable(ledger: Ledger):
    made = running(ledger)
    ledger.fail(made.fence, "x", retry_after=5)
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(made.id, WORKER)
    assert caught.value.context["why"] == "backoff"


def test_a_job_for_later_is_not_claimable(ledger: Ledger):
    made = queued(ledger, delay=5)
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(made.id, WORKER)
    assert caught.value.context["why"] == "scheduled"


def test_a_job_in_a_paused_queue_is_not_claimable(ledger: Ledger):
    made = queued(ledger, queue="a")
    ledger.pause("a")
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(made.id, WORKER)
    assert caught.value.context["why"] == "paused"


def test_a_ttl_sets_the_lease(ledger: Ledger, clock: ManualClock):
    job = ledger.claim_job(queued(ledger).id, WORKER, ttl="15m")
    assert job.claim_expires_at == clock.now() + timedelta(minutes=15)


def test_a_given_ttl_is_the_limit_of_silence(ledger: Ledger, clock: ManualClock):
    made = claim(ledger, queued(ledger).id, ttl="15m")
    clock.advance(900)
    assert ledger.sweep() == {}
    clock.advance(0.001)
    ledger.sweep()
    assert ledger.get(made.id).status == "queued"


def test_a_renewal_keeps_the_given_ttl(ledger: Ledger, clock: ManualClock):
    made = claim(ledger, queued(ledger).id, ttl=120)
    clock.advance(60)
    assert ledger.heartbeat(made.fence).lease_expires_at == clock.now() + timedelta(seconds=120)


@pytest.mark.parametrize("build", [claimed, running])
@pytest.mark.parametrize(("first", "then"), [("15m", "2m"), ("2m", "15m"), (None, "15m"), ("1s", "15m")], ids=str)
def test_the_holder_may_renew_for_another_ttl(ledger: Ledger, clock: ManualClock, build, first: str | None, then: str):
    made = claim(ledger, queued(ledger).id, ttl=first)
    if build is running:
        ledger.start(made.fence)
    job = ledger.claim_job(made.id, WORKER, ttl=then)
    length = timedelta(minutes=int(then[:-1]))
    assert (held(job), job.attempt, job.claim_expires_at) == (made.fence, 1, clock.now() + length)
    renewal = ledger.events(made.id)[-1]
    assert (renewal.type, renewal.payload["policy"]["lease_ttl_ms"]) == ("heartbeat", length.total_seconds() * 1_000)
    clock.advance(length.total_seconds())
    assert ledger.sweep() == {}
    assert ledger.heartbeat(made.fence).lease_expires_at == clock.now() + length
    assert ledger.check(made.id) == []
    clock.advance(length.total_seconds() + 0.001)
    ledger.sweep()
    assert (ledger.get(made.id).status, ledger.check(made.id)) == ("queued", [])


def test_a_renewal_for_the_same_ttl_records_no_policy(ledger: Ledger):
    made = claim(ledger, queued(ledger).id, ttl="15m")
    ledger.claim_job(made.id, WORKER, ttl="15m")
    ledger.claim_job(made.id, WORKER)
    assert [event.payload for event in ledger.events(made.id)[-2:]] == [{}, {}]


def test_a_repeated_renewal_for_another_ttl_changes_nothing(ledger: Ledger, clock: ManualClock):
    made = claim(ledger, queued(ledger).id, ttl="2m")
    first = ledger.claim_job(made.id, WORKER, ttl="15m", request_id="r1")
    clock.advance(10)
    assert ledger.claim_job(made.id, WORKER, ttl="15m", request_id="r1") == first
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.claim_job(made.id, WORKER, ttl="14m", request_id="r1")


def test_only_the_length_of_a_lease_changes_with_a_renewal(ledger: Ledger):
    made = claim(ledger, queued(ledger, policy={"attempts_max": 3, "cancel_grace": "7s"}).id)
    before = ledger.get(made.id).policy
    ledger.set_policy("index_page", attempts_max=9, backoff_base="9s", signed="all")
    after = ledger.claim_job(made.id, WORKER, ttl="15m").policy
    assert before is not None and after is not None
    lengths = {"lease_ttl_ms": 900_000, "heartbeat_interval_ms": 300_000}
    assert after == msgspec.structs.replace(before, **lengths)


def test_a_renewal_for_another_ttl_is_kept_after_its_heartbeat_is_pruned(ledger: Ledger, clock: ManualClock):
    made = claim(ledger, queued(ledger).id, ttl="2m")
    ledger.claim_job(made.id, WORKER, ttl="15m")
    for stage in ("A", "B"):
        ledger.heartbeat(made.fence, stage=stage)
    clock.advance(60)
    ledger.prune(beats_before=clock.now())
    assert ledger.check(made.id) == []
