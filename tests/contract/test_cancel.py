"""Cancelling: softly with a grace, or hard at once."""

import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    WINDOW,
    aborting,
    aborting_stalled,
    refused_without_trace,
    running,
    types,
)

GRACE_S = 30


@pytest.mark.parametrize("status", ["queued", "claimed", "claimed_stalled", "running_stalled"])
@pytest.mark.parametrize("hard", [False, True])
def test_a_job_that_does_not_run_is_cancelled_at_once(ledger: Ledger, status: str, hard: bool):
    made = BUILDERS[status](ledger)
    job = ledger.cancel(made.id, hard=hard, reason="moved away")
    assert (job.status, job.cancel_reason, job.owner, job.claim_expires_at) == ("cancelled", "moved away", None, None)


def test_the_holder_learns_of_a_soft_cancel_with_its_next_beat(ledger: Ledger):
    made = running(ledger)
    assert not ledger.heartbeat(made.fence).cancel_requested
    ledger.cancel(made.id)
    beat = ledger.heartbeat(made.fence)
    assert (beat.cancel_requested, beat.status) == (True, "running")


def test_a_batch_of_beats_reports_a_soft_cancel(ledger: Ledger):
    calm, leaving = running(ledger), aborting(ledger)
    beats = ledger.heartbeat_many([calm.fence, leaving.fence])
    assert [beat.cancel_requested for beat in beats if not isinstance(beat, Exception)] == [False, True]


def test_the_holder_acknowledges_a_soft_cancel(ledger: Ledger):
    made = aborting(ledger)
    job = ledger.acknowledge_cancel(made.fence)
    assert (job.status, job.cancel_reason, job.owner) == ("cancelled", "not needed", None)
    assert ledger.check(made.id) == []


def test_a_completion_while_aborting_is_accepted(ledger: Ledger):
    made = aborting(ledger)
    ledger.complete(made.fence, {"saved": True})
    job = ledger.get(made.id)
    assert (job.status, job.result) == ("succeeded", {"saved": True})
    assert ledger.check(made.id) == []


def test_an_exhausted_transient_error_while_aborting_cancels(ledger: Ledger):
    made = aborting(ledger, policy={"attempts_max": 1})
    assert ledger.fail(made.fence, "x").status == "cancelled"


def test_a_sweep_within_the_grace_changes_nothing(ledger: Ledger, clock: ManualClock):
    made = aborting(ledger)
    clock.advance(GRACE_S)
    ledger.heartbeat(made.fence)
    assert ledger.sweep() == {}


def test_a_sweep_after_the_grace_cancels_the_job(ledger: Ledger, clock: ManualClock):
    made = aborting(ledger)
    clock.advance(20)
    ledger.heartbeat(made.fence)
    clock.advance(10.001)
    assert ledger.sweep() == {"cancelled": 1}
    assert ledger.get(made.id).cancel_reason == "not needed"
    with refused_without_trace(ledger, "fence_lost"):
        ledger.complete(made.fence, 1)
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("seconds", [5, 120])
def test_the_policy_sets_the_grace(ledger: Ledger, clock: ManualClock, seconds: int):
    made = aborting(ledger, policy={"cancel_grace": seconds, "heartbeat_interval": 100})
    clock.advance(seconds)
    assert ledger.sweep() == {}
    clock.advance(0.001)
    assert ledger.sweep() == {"cancelled": 1}
    assert ledger.get(made.id).status == "cancelled"


def test_repeating_a_soft_cancel_changes_nothing(ledger: Ledger, clock: ManualClock):
    made = aborting(ledger)
    before = ledger.get(made.id)
    clock.advance(1)
    assert ledger.cancel(made.id, reason="again") == before
    assert types(ledger, made.id)[-1] == "cancel_requested"


def test_a_repeated_soft_cancel_does_not_extend_the_grace(ledger: Ledger, clock: ManualClock):
    made = aborting(ledger)
    clock.advance(20)
    ledger.heartbeat(made.fence)
    ledger.cancel(made.id)
    clock.advance(11)
    assert ledger.sweep() == {"cancelled": 1}


def test_a_stalled_job_that_was_aborting_is_cancelled_never_requeued(ledger: Ledger, clock: ManualClock):
    made = aborting_stalled(ledger, policy={"cancel_grace": "1h"} | WINDOW)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.requeue(made.id)
    clock.advance(60)
    assert ledger.sweep() == {"cancelled": 1}
    assert ledger.check(made.id) == []


def test_a_silent_aborting_job_is_stalled_and_cancelled_in_one_tick(ledger: Ledger, clock: ManualClock):
    made = aborting(ledger, policy={"cancel_grace": "1h"})
    clock.advance(31)
    ledger.sweep()
    assert types(ledger, made.id)[-2:] == ["stalled", "cancelled"]


def test_a_stalled_job_that_was_aborting_cannot_be_claimed(ledger: Ledger, clock: ManualClock):
    made = aborting_stalled(ledger, policy={"cancel_grace": "1h"} | WINDOW)
    clock.advance(61)
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(made.id, "w-2")
    assert caught.value.context["why"] == "cancelling"


def test_the_event_of_a_cancel_has_actor_and_reason(ledger: Ledger):
    made = running(ledger)
    ledger.cancel(made.id, reason="out of paper", actor="ann")
    event = ledger.events(made.id)[-1]
    assert (event.type, event.actor, event.reason) == ("cancel_requested", "client:ann", "out of paper")
