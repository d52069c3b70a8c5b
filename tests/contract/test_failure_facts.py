"""Failure facts: the error, the stage and the reason of an attempt, in every way a job can end."""

from typing import Any

import pytest

from holdfast import Job, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    Made,
    aborting,
    claim,
    claimed,
    queued,
    refused_without_trace,
    running,
    running_stalled,
    types,
)

ONCE = {"attempts_max": 1}
ONCE_FAIL = {"attempts_max": 1, "on_exhausted": "fail"}
TWICE = {"attempts_max": 2}


def _facts(job: Job) -> tuple[Any, Any, Any]:
    """The error's message, the stage and the reason code that the job's row has."""
    return (job.last_error or {}).get("message"), job.failure_stage, job.reason_code


def _last(ledger: Ledger, made: Made) -> tuple[str | None, dict[str, Any]]:
    """The reason and the payload of the newest event."""
    event = ledger.events(made.id)[-1]
    return event.reason, event.payload


def _again(ledger: Ledger, clock: ManualClock, made: Made) -> Made:
    """The next attempt, running."""
    clock.advance(100)
    again = claim(ledger, made.id)
    ledger.start(again.fence)
    return again


# failed


def test_a_permanent_failure_records_its_stage_and_that_it_is_permanent(ledger: Ledger):
    made = running(ledger)
    job = ledger.fail(made.fence, "no such page", retryable=False, failure_stage="fetch")
    assert (job.status, *_facts(job)) == ("failed", "no such page", "fetch", None)
    expected = {"error": {"message": "no such page"}, "failure": "permanent", "failure_stage": "fetch"}
    assert _last(ledger, made) == ("permanent", expected)
    assert ledger.check(made.id) == []


def test_a_permanent_failure_without_a_stage_has_the_stage_exec(ledger: Ledger):
    job = ledger.fail(running(ledger).fence, "no", retryable=False)
    assert (job.status, job.failure_stage) == ("failed", "exec")


@pytest.mark.parametrize(("given", "kept"), [(None, "exhausted_retries"), ("dependency_unavailable", "dependency_unavailable")])
def test_an_exhausted_job_that_fails_keeps_its_stage_and_reason(ledger: Ledger, given: str | None, kept: str):
    made = running(ledger, policy=ONCE_FAIL)
    job = ledger.fail(made.fence, "no route", failure_stage="output", reason_code=given)
    assert (job.status, *_facts(job)) == ("failed", "no route", "output", kept)
    expected = {"error": {"message": "no route"}, "failure": "exhausted", "failure_stage": "output", "reason_code": kept}
    assert _last(ledger, made) == (kept, expected)
    assert ledger.check(made.id) == []


def test_an_exhausted_job_that_lost_its_worker_fails_for_that_reason(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=ONCE_FAIL)
    clock.advance(100)
    ledger.sweep()
    job = ledger.get(made.id)
    assert (job.status, *_facts(job)) == ("failed", "stalled: NO_HEARTBEAT", "exec", "infrastructure_failure")
    assert _last(ledger, made)[1]["failure"] == "exhausted"
    assert ledger.check(made.id) == []


# dead_lettered


@pytest.mark.parametrize(("given", "kept"), [(None, "exhausted_retries"), ("timeout", "timeout")])
def test_a_dead_letter_has_the_reason_of_the_last_attempt(ledger: Ledger, given: str | None, kept: str):
    made = running(ledger, policy=ONCE)
    job = ledger.fail(made.fence, "too slow", failure_stage="commit", reason_code=given)
    assert (job.status, *_facts(job)) == ("dead_lettered", "too slow", "commit", kept)
    assert ledger.check(made.id) == []


def test_a_dead_letter_does_not_have_the_reason_of_an_earlier_attempt(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=TWICE)
    ledger.fail(made.fence, "too slow", failure_stage="commit", reason_code="timeout")
    made = _again(ledger, clock, made)
    job = ledger.fail(made.fence, "no route")
    assert (job.status, *_facts(job)) == ("dead_lettered", "no route", "exec", "exhausted_retries")


def test_a_lost_attempt_does_not_have_the_error_of_an_earlier_attempt(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=TWICE)
    ledger.fail(made.fence, "no route", failure_stage="fetch", reason_code="dependency_unavailable")
    _again(ledger, clock, made)
    clock.advance(100)
    ledger.sweep()
    job = ledger.get(made.id)
    assert (job.status, *_facts(job)) == ("dead_lettered", "stalled: NO_HEARTBEAT", "exec", "infrastructure_failure")
    assert ledger.check(made.id) == []


def test_a_silent_claim_that_never_started_has_the_reason_worker_lost(ledger: Ledger, clock: ManualClock):
    made = claimed(ledger, policy=ONCE)
    clock.advance(100)
    ledger.sweep()
    job = ledger.get(made.id)
    assert (*_facts(job),) == ("stalled: LEASE_EXPIRED", "exec", "infrastructure_failure")


def test_a_job_with_beats_but_without_progress_has_timed_out(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=ONCE | {"progress_timeout": "20s"})
    clock.advance(15)
    ledger.heartbeat(made.fence)
    clock.advance(10)
    ledger.sweep()
    job = ledger.get(made.id)
    assert (job.status, *_facts(job)) == ("dead_lettered", "stalled: NO_PROGRESS", "exec", "timeout")


def test_a_dead_letter_has_the_stage_and_reason_of_the_holders_stall(ledger: Ledger):
    made = claimed(ledger, policy=ONCE | WINDOW)
    ledger.stall(made.fence, error="no arm", failure_stage="input", reason_code="policy_violation")
    assert _last(ledger, made)[1]["failure_stage"] == "input"
    job = ledger.requeue(made.id)
    assert (job.status, *_facts(job)) == ("dead_lettered", "no arm", "input", "policy_violation")
    assert ledger.check(made.id) == []


def test_a_stall_without_an_error_does_not_have_the_error_of_an_earlier_attempt(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=TWICE | WINDOW)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    made = _again(ledger, clock, made)
    ledger.stall(made.fence)
    job = ledger.requeue(made.id)
    assert (job.status, *_facts(job)) == ("dead_lettered", "stalled: WORKER_ERROR", "exec", "exhausted_retries")


@pytest.mark.parametrize(("on_exhausted", "status"), [("dead_letter", "dead_lettered"), ("fail", "failed")])
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("reason", ["TRANSIENT_ERROR", "RELEASED", "WORKER_ERROR"])
def test_a_stall_without_an_error_has_its_reason(
    ledger: Ledger, clock: ManualClock, on_exhausted: str, status: str, earlier: bool, reason: str
):
    made = running(ledger, policy={"attempts_max": 2 if earlier else 1, "on_exhausted": on_exhausted})
    if earlier:
        ledger.fail(made.fence, "earlier", failure_stage="fetch", reason_code="parse_error")
        made = _again(ledger, clock, made)
    ledger.stall(made.fence, reason=reason)
    ledger.sweep()
    job = ledger.get(made.id)
    assert (job.status, *_facts(job)) == (status, f"stalled: {reason}", "exec", "exhausted_retries")
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("given", [{"failure_stage": "input"}, {"reason_code": "timeout"}])
def test_a_stage_or_reason_without_an_error_is_refused(ledger: Ledger, given: dict[str, Any]):
    made = running(ledger, policy=WINDOW)
    with refused_without_trace(ledger, "validation_error"):
        ledger.stall(made.fence, **given)


def test_only_a_holder_may_give_stage_and_reason_of_a_stall(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=WINDOW)
    clock.advance(100)
    with refused_without_trace(ledger, "validation_error"):
        ledger.stall(made.id, failure_stage="input")


def test_an_operators_dead_letter_has_the_facts_of_the_attempt_that_failed(ledger: Ledger):
    made = running(ledger)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    job = ledger.dead_letter(made.id, reason_code="policy_violation")
    assert _facts(job) == ("no route", "fetch", "policy_violation")
    assert ledger.check(made.id) == []


def test_an_operators_dead_letter_of_a_running_job_has_no_error_of_an_earlier_attempt(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    _again(ledger, clock, made)
    job = ledger.dead_letter(made.id, reason_code="policy_violation")
    assert _facts(job) == (None, "exec", "policy_violation")
    assert ledger.check(made.id) == []


def test_an_operators_error_does_not_have_the_stage_of_an_earlier_error(ledger: Ledger):
    made = running(ledger)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    job = ledger.dead_letter(made.id, reason_code="policy_violation", error="not allowed")
    assert _facts(job) == ("not allowed", "exec", "policy_violation")


def test_a_release_is_not_a_failure(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    made = _again(ledger, clock, made)
    ledger.release(made.fence)
    job = ledger.dead_letter(made.id, reason_code="policy_violation")
    assert _facts(job) == (None, "exec", "policy_violation")


@pytest.mark.parametrize("choice", ["dead_letter", "fail"])
def test_a_failed_dependency_is_the_reason_of_its_dependents(ledger: Ledger, choice: str):
    first = running(ledger, policy={"attempts_max": 1, "on_exhausted": choice})
    waits = queued(ledger, depends_on=[first.id], on_dependency_failure="dead_letter")
    ledger.fail(first.fence, "no")
    job = ledger.get(waits.id)
    assert (job.status, job.failure_stage, job.reason_code) == ("dead_lettered", "fetch", "dependency_unavailable")
    late = queued(ledger, depends_on=[first.id], on_dependency_failure="dead_letter")
    assert ledger.get(late.id).reason_code == "dependency_unavailable"


# Retries and cancels


def test_a_transient_failure_is_recorded_with_its_stage_and_reason(ledger: Ledger):
    made = running(ledger)
    job = ledger.fail(made.fence, "no route", failure_stage="fetch", reason_code="dependency_unavailable")
    assert (job.status, *_facts(job)) == ("queued", "no route", "fetch", "dependency_unavailable")
    [stalled] = ledger.events(made.id, types=["stalled"])
    assert (stalled.payload["failure_stage"], stalled.payload["reason_code"]) == ("fetch", "dependency_unavailable")
    assert stalled.reason == "TRANSIENT_ERROR"
    assert ledger.check(made.id) == []


def test_a_failure_of_a_job_that_is_being_cancelled_is_recorded_with_the_cancel(ledger: Ledger):
    made = aborting(ledger)
    job = ledger.fail(made.fence, "torn down", failure_stage="output", reason_code="infrastructure_failure")
    assert (job.status, job.cancel_reason) == ("cancelled", "not needed")
    assert _facts(job) == ("torn down", "output", "infrastructure_failure")
    expected = {"error": {"message": "torn down"}, "failure_stage": "output", "reason_code": "infrastructure_failure"}
    assert _last(ledger, made) == ("not needed", expected)
    assert ledger.check(made.id) == []


def test_only_an_undo_job_may_have_the_reason_compensation_failed(ledger: Ledger):
    made = running(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.fail(made.fence, "x", reason_code="compensation_failed")
    stalled = running(ledger, policy=WINDOW)
    with refused_without_trace(ledger, "validation_error"):
        ledger.stall(stalled.fence, error="x", reason_code="compensation_failed")


def test_a_job_that_succeeds_after_a_failure_has_no_failure_facts(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.fail(made.fence, "no route", failure_stage="fetch", reason_code="timeout")
    made = _again(ledger, clock, made)
    ledger.complete(made.fence, 1)
    job = ledger.get(made.id)
    assert (job.status, job.error, job.failure_stage, job.reason_code) == ("succeeded", None, None, None)
    assert ledger.check(made.id) == []


def test_a_new_attempt_has_no_failure_facts(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    ledger.resume(made.fence)
    ledger.fail(made.fence, "no route", failure_stage="fetch")
    _again(ledger, clock, made)
    job = ledger.get(made.id)
    assert (job.status, job.failure_stage, job.reason_code) == ("running", None, None)
    assert types(ledger, made.id)[-1] == "started"
