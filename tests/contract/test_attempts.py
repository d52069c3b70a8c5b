"""Attempts, releases, retries and their end."""

import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import WINDOW, WORKER, Made, claim, claimed, refused, running, running_stalled, types


def _again(ledger: Ledger, clock: ManualClock, job_id: int) -> Made:
    """The next attempt, running."""
    clock.advance(100)
    made = claim(ledger, job_id)
    ledger.start(made.fence)
    return made


def _wait_s(ledger: Ledger, clock: ManualClock, job_id: int) -> float:
    return (ledger.get(job_id).available_at - clock.now()).total_seconds()


# Rules 2 and 3


def test_only_new_claims_change_the_attempt(ledger: Ledger):
    made = running(ledger, policy=WINDOW)
    ledger.heartbeat(made.fence)
    ledger.claim_job(made.id, WORKER)
    ledger.assist(made.id)
    ledger.stall(made.fence)
    ledger.heartbeat(made.fence)
    ledger.resume(made.id)
    ledger.cancel(made.id)
    ledger.acknowledge_cancel(made.fence)
    ledger.discard(made.id)
    assert ledger.get(made.id).attempt == 1
    assert [event.attempt for event in ledger.events(made.id)] == [0] + [1] * 11


# Retries


@pytest.mark.parametrize(("attempt", "plain_s"), [(1, 0.5), (2, 1), (3, 2), (4, 4)])
def test_backoff_doubles_with_each_attempt_and_varies_by_half(ledger: Ledger, clock: ManualClock, attempt: int, plain_s: float):
    made = running(ledger)
    for _ in range(attempt - 1):
        ledger.fail(made.fence, "x")
        made = _again(ledger, clock, made.id)
    ledger.fail(made.fence, "x")
    assert 0.5 * plain_s <= _wait_s(ledger, clock, made.id) <= 1.5 * plain_s


def test_backoff_has_a_ceiling(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"backoff_base": "50s", "backoff_max": "60s"})
    ledger.fail(made.fence, "x")
    made = _again(ledger, clock, made.id)
    ledger.fail(made.fence, "x")
    assert 30 <= _wait_s(ledger, clock, made.id) <= 90


def test_backoff_counts_released_attempts(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"backoff_base": "5s"})
    for _ in range(3):
        ledger.release(made.fence)
        made = _again(ledger, clock, made.id)
    ledger.fail(made.fence, "x")
    assert 20 <= _wait_s(ledger, clock, made.id) <= 60


@pytest.mark.parametrize(("given", "seconds"), [(7, 7), ("90s", 90), (0, 0)])
def test_retry_after_replaces_the_backoff(ledger: Ledger, clock: ManualClock, given, seconds: float):
    made = running(ledger)
    ledger.fail(made.fence, "x", retry_after=given)
    assert _wait_s(ledger, clock, made.id) == seconds


# Releases


@pytest.mark.parametrize("build", [claimed, running])
def test_a_release_requeues_without_backoff(ledger: Ledger, clock: ManualClock, build):
    made = build(ledger)
    job = ledger.release(made.fence)
    assert (job.status, job.stall_reason, job.available_at) == ("queued", "RELEASED", clock.now())
    assert claim(ledger, made.id, "w-2").fence.attempt == 2


def test_releases_do_not_count_against_attempts_max(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"attempts_max": 2})
    for _ in range(3):
        ledger.release(made.fence)
        made = _again(ledger, clock, made.id)
    assert ledger.fail(made.fence, "x").status == "queued"
    made = _again(ledger, clock, made.id)
    assert ledger.fail(made.fence, "x").status == "dead_lettered"
    assert ledger.check(made.id) == []


# Exhaustion


@pytest.mark.parametrize(("on_exhausted", "status"), [("dead_letter", "dead_lettered"), ("fail", "failed")])
def test_the_sweep_exhausts_a_silent_job_without_attempts_left(
    ledger: Ledger, clock: ManualClock, on_exhausted: str, status: str
):
    made = running(ledger, policy={"attempts_max": 1, "on_exhausted": on_exhausted})
    clock.advance(31)
    ledger.sweep()
    assert types(ledger, made.id)[-2:] == ["stalled", status]
    assert ledger.check(made.id) == []


@pytest.mark.parametrize(("on_exhausted", "status"), [("dead_letter", "dead_lettered"), ("fail", "failed")])
def test_a_requeue_without_attempts_left_exhausts(ledger: Ledger, on_exhausted: str, status: str):
    made = running_stalled(ledger, policy={"attempts_max": 1, "on_exhausted": on_exhausted} | WINDOW)
    assert ledger.requeue(made.id).status == status


def test_an_exhausted_stalled_job_cannot_be_claimed(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger, policy={"attempts_max": 1} | WINDOW)
    clock.advance(61)
    with refused("not_claimable") as caught:
        ledger.claim_job(made.id, "w-2")
    assert caught.value.context["why"] == "exhausted"


# Permanent failures


@pytest.mark.parametrize("result", [None, 0, "", [], {}, {"a": [1, 2.5, True]}, "é€😀\x00"], ids=repr)
def test_a_result_of_null_is_recorded(ledger: Ledger, result):
    made = running(ledger)
    ledger.complete(made.fence, result)
    job = ledger.get(made.id)
    assert job.result == result
    assert job.record.result is not None
    assert ledger.check(made.id) == []
