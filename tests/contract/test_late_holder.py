"""Rule 10: a holder that comes back after its lease ran out, before another worker has the job, loses no work."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Fence, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    WORKER,
    Made,
    aborting,
    assisted,
    claimed,
    held,
    refused_without_trace,
    running,
    types,
)

LEASE_S = 60

Case = tuple[Callable[[Ledger, Fence], Any], list[str], str]

RETURNS: dict[str, Case] = {
    "heartbeat": (lambda ledger, fence: ledger.heartbeat(fence), ["heartbeat"], "running"),
    "complete": (lambda ledger, fence: ledger.complete(fence, 1), ["succeeded"], "succeeded"),
    "fail": (lambda ledger, fence: ledger.fail(fence, "x"), ["stalled", "requeued"], "queued"),
    "fail for good": (lambda ledger, fence: ledger.fail(fence, "x", retryable=False), ["failed"], "failed"),
    "release": (lambda ledger, fence: ledger.release(fence), ["stalled", "requeued"], "queued"),
    "resume": (lambda ledger, fence: ledger.resume(fence), [], "running"),
}
every_return = pytest.mark.parametrize(("verb", "own", "status"), RETURNS.values(), ids=RETURNS)


def _late(ledger: Ledger, clock: ManualClock, build: Callable[..., Made] = running) -> Made:
    made = build(ledger, policy=WINDOW)
    clock.advance(LEASE_S + 1)
    return made


def _late_and_swept(ledger: Ledger, clock: ManualClock, build: Callable[..., Made] = running) -> Made:
    made = _late(ledger, clock, build)
    ledger.sweep()
    assert ledger.get(made.id).status == "stalled"
    return made


@every_return
def test_before_the_sweep_the_verb_records_the_stall_and_the_return_first(
    ledger: Ledger, clock: ManualClock, verb: Callable[[Ledger, Fence], Any], own: list[str], status: str
):
    made = _late(ledger, clock)
    rev = ledger.get(made.id).rev
    verb(ledger, made.fence)
    assert types(ledger, made.id, rev) == ["stalled", "resumed", *own]
    assert ledger.get(made.id).status == status
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("name", [name for name in RETURNS if name != "heartbeat"])
def test_after_the_sweep_the_verb_records_the_return_first(ledger: Ledger, clock: ManualClock, name: str):
    verb, own, status = RETURNS[name]
    made = _late_and_swept(ledger, clock)
    rev = ledger.get(made.id).rev
    verb(ledger, made.fence)
    assert types(ledger, made.id, rev) == ["resumed", *own]
    assert ledger.get(made.id).status == status
    assert ledger.check(made.id) == []


def test_after_the_sweep_a_beat_is_evidence_of_life_only(ledger: Ledger, clock: ManualClock):
    made = _late_and_swept(ledger, clock)
    beat = ledger.heartbeat(made.fence, progress=4)
    assert (beat.status, beat.lease_expires_at) == ("stalled", None)
    assert types(ledger, made.id)[-1] == "heartbeat"
    assert ledger.check(made.id) == []


def test_the_stall_has_the_system_as_actor_and_the_return_has_the_worker(ledger: Ledger, clock: ManualClock):
    made = _late(ledger, clock)
    ledger.heartbeat(made.fence)
    stalled, resumed, beat = ledger.events(made.id)[-3:]
    assert (stalled.actor, stalled.reason) == ("system:ledger", "NO_HEARTBEAT")
    assert resumed.actor == beat.actor == f"worker:{WORKER}#{ledger.incarnation}"


def test_at_the_end_of_the_lease_the_holder_is_not_late(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(LEASE_S)
    ledger.complete(made.fence, 1)
    assert types(ledger, made.id)[-2:] == ["started", "succeeded"]


@pytest.mark.parametrize("late", [_late, _late_and_swept], ids=["before the sweep", "after the sweep"])
@pytest.mark.parametrize("build", [claimed, running])
def test_a_late_claim_by_id_by_the_last_holder_begins_a_new_attempt(
    ledger: Ledger, clock: ManualClock, late: Callable[..., Made], build: Callable[..., Made]
):
    made = late(ledger, clock, build)
    job = ledger.claim_job(made.id, WORKER)
    assert (job.status, job.attempt, held(job).attempt) == ("claimed", 2, 2)
    assert types(ledger, made.id)[-2:] == ["stalled", "claimed"]
    with refused_without_trace(ledger, "fence_lost"):
        ledger.heartbeat(made.fence)
    assert ledger.check(made.id) == []


def test_a_late_holder_of_an_aborting_job_returns_to_aborting(ledger: Ledger, clock: ManualClock):
    made = _late(ledger, clock, aborting)
    assert ledger.heartbeat(made.fence).cancel_requested
    assert ledger.get(made.id).phase == "aborting"
    assert ledger.acknowledge_cancel(made.fence).status == "cancelled"


def test_a_late_holder_of_an_assisted_job_returns_to_executing(ledger: Ledger, clock: ManualClock):
    made = _late(ledger, clock, assisted)
    ledger.heartbeat(made.fence)
    assert ledger.get(made.id).phase == "executing"


# An attempt that had not been started


@pytest.mark.parametrize("late", [_late, _late_and_swept], ids=["before the sweep", "after the sweep"])
def test_a_late_start_is_a_return(ledger: Ledger, clock: ManualClock, late: Callable[..., Made]):
    made = late(ledger, clock, claimed)
    ledger.start(made.fence)
    assert types(ledger, made.id) == ["enqueued", "claimed", "stalled", "resumed"]
    assert ledger.get(made.id).status == "running"
    assert ledger.complete(made.fence, 1).status == "succeeded"
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("late", [_late, _late_and_swept], ids=["before the sweep", "after the sweep"])
def test_a_late_release_of_a_claimed_job_hands_it_back(ledger: Ledger, clock: ManualClock, late: Callable[..., Made]):
    made = late(ledger, clock, claimed)
    job = ledger.release(made.fence)
    assert (job.status, job.releases) == ("queued", 1)
    assert types(ledger, made.id)[-2:] == ["stalled", "requeued"]
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("late", [_late, _late_and_swept], ids=["before the sweep", "after the sweep"])
def test_a_late_beat_of_a_claimed_job_proves_life_and_leaves_it_startable(
    ledger: Ledger, clock: ManualClock, late: Callable[..., Made]
):
    made = late(ledger, clock, claimed)
    ledger.heartbeat(made.fence)
    assert ledger.start(made.fence).status == "running"
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("verb", ["complete", "fail", "fail for good"])
@pytest.mark.parametrize("late", [_late, _late_and_swept], ids=["before the sweep", "after the sweep"])
def test_a_job_that_was_never_started_cannot_be_completed(
    ledger: Ledger, clock: ManualClock, late: Callable[..., Made], verb: str
):
    made = late(ledger, clock, claimed)
    with refused_without_trace(ledger, "invalid_transition"):
        RETURNS[verb][0](ledger, made.fence)
