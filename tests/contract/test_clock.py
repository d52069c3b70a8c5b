"""Rule 8: the ledger's clock alone decides, and its steps harm no holder."""

from itertools import pairwise

import pytest

import holdfast
from holdfast import Ledger, PolicyFields
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.contract.builders import WINDOW, claim, claimed, queued, refused, running, running_stalled, types
from tests.support.near import near

STEPS = [-3_600, -1, 0, 1, 3_600]


@pytest.mark.parametrize("first", STEPS)
def test_times_of_a_job_never_go_back(ledger: Ledger, clock: ManualClock, first: float):
    for second in STEPS:
        made = running(ledger, policy={"attempts_max": 9})
        clock.jump(first)
        ledger.heartbeat(made.fence, progress=1)
        clock.jump(second)
        ledger.heartbeat(made.fence)
        clock.jump(first)
        ledger.fail(made.fence, "again")
        times = [event.received_at for event in ledger.events(made.id)]
        assert all(earlier <= later for earlier, later in pairwise(times))
        assert ledger.check(made.id) == []


def test_a_step_back_never_shortens_a_lease(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    before = ledger.get(made.id).claim_expires_at
    clock.jump(-600)
    after = ledger.heartbeat(made.fence).lease_expires_at
    assert before is not None
    assert after is not None
    assert after >= before


@pytest.mark.parametrize("step", [-3_600, 3_600])
def test_a_clock_step_stalls_no_holder_at_once(ledger: Ledger, clock: ManualClock, step: float):
    made = running(ledger)
    ledger.sweep()
    clock.jump(step)
    clock.advance(1)
    assert ledger.sweep() == {}
    assert ledger.get(made.id).status == "running"


def test_every_holder_gets_one_fresh_interval_after_a_step_forward(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.sweep()
    clock.jump(3_600)
    ledger.sweep()
    clock.advance(30)
    assert ledger.sweep() == {}
    clock.advance(0.001)
    ledger.sweep()
    assert types(ledger, made.id)[-2:] == ["stalled", "requeued"]


def test_a_holder_with_a_heartbeat_in_the_fresh_interval_stays(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=WINDOW)
    ledger.sweep()
    clock.jump(3_600)
    ledger.sweep()
    clock.advance(5)
    ledger.heartbeat(made.fence)
    clock.advance(29)
    assert ledger.sweep() == {}
    assert ledger.get(made.id).status == "running"


def test_silence_is_not_taken_for_a_clock_step(ledger: Ledger, clock: ManualClock):
    running(ledger)
    ledger.sweep()
    clock.advance(3_600)
    assert ledger.sweep() == {"stalled": 1, "requeued": 1}


def test_a_step_does_not_end_a_resume_window_early(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    ledger.sweep()
    clock.jump(3_600)
    assert ledger.sweep() == {}
    assert ledger.get(made.id).status == "stalled"


def test_a_job_enqueued_before_a_step_back_can_be_claimed_and_completed(ledger: Ledger, clock: ManualClock):
    made = queued(ledger, delay=0)
    clock.jump(-5)
    clock.advance(5)
    fence = claim(ledger, made.id).fence
    ledger.start(fence)
    ledger.complete(fence, 1)
    assert ledger.check(made.id) == []


def test_received_at_is_the_ledgers_time(ledger: Ledger, clock: ManualClock):
    made = queued(ledger)
    [event] = ledger.events(made.id)
    assert event.received_at == event.at == clock.now()


def test_a_clock_step_gives_no_job_to_another_worker(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.sweep()
    clock.jump(3_600)
    assert ledger.sweep() == {}
    with refused("lease_conflict"):
        ledger.claim_job(made.id, "thief")
    with refused("not_stalled_yet"):
        ledger.stall(made.id)


def test_a_claimed_job_with_heartbeats_is_not_stalled(ledger: Ledger, clock: ManualClock):
    made = claimed(ledger)
    clock.advance(61)
    ledger.heartbeat(made.fence)
    clock.advance(29)
    assert ledger.sweep() == {}
    assert ledger.start(made.fence).status == "running"
    assert ledger.check(made.id) == []


def test_a_sweep_that_could_not_reach_the_store_stalls_no_holder(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    near(ledger)._sweeper._cut_off = True
    clock.advance(61)
    assert ledger.sweep() == {}
    assert ledger.get(made.id).status == "running"


def test_a_clock_step_seen_by_one_process_counts_for_all(ledger: Ledger, store_url: str, clock: ManualClock):
    made = running(ledger)
    ledger.sweep()
    clock.jump(3_600)
    ledger.sweep()
    with holdfast.open(store_url, clock=clock) as other:
        assert other.sweep() == {}
        with refused("lease_conflict"):
            other.claim_job(made.id, "rival")
        with refused("not_stalled_yet"):
            other.stall(made.id)
        assert Agent(other, "rival").gc().released == []
        clock.advance(31)
        assert other.sweep() == {"stalled": 1, "requeued": 1}


def test_a_step_back_ends_the_fresh_interval_that_a_step_forward_began(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    ledger.sweep()
    clock.jump(3_600)
    ledger.sweep()
    clock.jump(-3_600)
    ledger.sweep()
    clock.advance(61)
    ledger.sweep()
    assert types(ledger, made.id)[-2:] == ["stalled", "requeued"]


def test_a_step_back_gives_a_fresh_interval(ledger: Ledger, clock: ManualClock) -> None:
    """After the first step the progress seems to be old. The second step does not end the fresh interval."""
    policy: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 60, "progress_timeout": 2}
    ledger.enqueue("k", policy=policy)
    [job] = ledger.claim("w", start=True)
    assert ledger.sweep() == {}
    clock.jump(14.5)
    assert ledger.sweep() == {}
    clock.advance(0.5)
    ledger.heartbeat(job.fence)
    clock.jump(-5)
    assert ledger.sweep() == {}
    clock.advance(1)
    assert ledger.sweep() == {}
    clock.advance(0.001)
    assert ledger.sweep() == {"stalled": 1, "requeued": 1}
