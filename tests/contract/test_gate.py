"""`ledger.gate`: whether a holder may proceed. It denies what is ambiguous."""

from typing import Any

import msgspec
import pytest

from holdfast import Fence, Ledger
from holdfast.core.liveness import episode_id
from holdfast.liveness import HealthVerdict, LivenessHeartbeatReceiptV1
from holdfast.testing import ManualClock
from tests.contract import builders
from tests.contract.builders import BUILDERS, Made, claim, refused, refused_without_trace, running, types

HEALTHY = {"claimed", "running", "aborting", "assisted"}
REASONS = dict.fromkeys(("claimed_stalled", "running_stalled", "aborting_stalled"), "unhealthy_verdict")


def denied(ledger: Ledger, job: int | Fence) -> dict[str, Any]:
    with refused_without_trace(ledger, "gate_denied") as caught:
        ledger.gate(job)
    return caught.value.context


@pytest.mark.parametrize("state", BUILDERS)
def test_only_a_live_holder_passes(ledger: Ledger, state: str):
    made = BUILDERS[state](ledger)
    if state in HEALTHY:
        assert ledger.gate(made.id).health_verdict is HealthVerdict.HEALTHY
        assert ledger.gate(made.fence) == ledger.gate(made.id)
    else:
        assert denied(ledger, made.id)["reason"] == REASONS.get(state, "ambiguous_state")


def test_the_receipt_matches_the_job(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(5)
    beat = ledger.heartbeat(made.fence, stage="TASK", progress=3)
    clock.advance(2)
    receipt = ledger.gate(made.id)
    assert receipt.run_id == f"{made.id}-1"
    assert receipt.episode_id == episode_id(made.fence)
    assert receipt.emitted_at_tick == round(beat.at.timestamp() * 1_000)
    assert (receipt.uptime_ms, receipt.restart_count, receipt.max_restarts) == (5_000, 0, 4)
    assert LivenessHeartbeatReceiptV1.from_json(receipt.to_json()) == receipt


def test_a_silent_holder_is_denied_until_its_next_beat(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(30)
    ledger.gate(made.fence)
    clock.advance(0.001)
    context = denied(ledger, made.fence)
    assert (context["reason"], context["detail"]) == ("unhealthy_verdict", "stalled: silent past its stall limit")
    assert LivenessHeartbeatReceiptV1.from_json(msgspec.json.encode(context["receipt"])).health_verdict is HealthVerdict.STALLED
    ledger.heartbeat(made.fence)
    ledger.gate(made.fence)


def test_a_holder_that_returns_after_a_crash_passes_again(ledger: Ledger):
    made = running(ledger, policy=builders.WINDOW)
    ledger.stall(made.fence, reason="WORKER_ERROR")
    assert denied(ledger, made.id)["detail"] == "crashed: WORKER_ERROR"
    ledger.heartbeat(made.fence)
    assert denied(ledger, made.fence)["reason"] == "ambiguous_state"
    ledger.resume(made.fence)
    assert ledger.gate(made.fence).health_verdict is HealthVerdict.HEALTHY


def test_the_restart_count_is_the_number_of_earlier_attempts(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"attempts_max": 2, "backoff_base": 0})
    ledger.fail(made.fence, "again")
    again = claim(ledger, made.id)
    receipt = ledger.gate(again.fence)
    assert (receipt.run_id, receipt.restart_count, receipt.max_restarts) == (f"{made.id}-2", 1, 1)


def test_an_old_fence_is_refused(ledger: Ledger):
    made = running(ledger)
    ledger.release(made.fence)
    with refused("fence_lost"):
        ledger.gate(made.fence)
    newer = claim(ledger, made.id)
    ledger.gate(newer.fence)
    with refused_without_trace(ledger, "fence_lost"):
        ledger.gate(made.fence)
    with refused("fence_lost"):
        ledger.gate(Fence(made.id, 2, "guessed", "w-1"))


def test_after_a_clock_step_the_gate_requires_a_new_heartbeat(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.jump(3_600)
    assert denied(ledger, made.fence)["reason"] == "unhealthy_verdict"
    ledger.heartbeat(made.fence)
    ledger.gate(made.fence)
    clock.jump(-30)
    ledger.gate(made.fence)
    clock.jump(-1)
    assert denied(ledger, made.fence)["reason"] == "ambiguous_state"


@pytest.mark.parametrize(("job", "code"), [(999, "not_found"), (0, "limit_exceeded"), ("1", "validation_error")])
def test_an_unknown_job_is_not_found(ledger: Ledger, job: Any, code: str):
    with refused(code):
        ledger.gate(job)


# Completions with the gate


def late(ledger: Ledger, clock: ManualClock) -> Made:
    made = running(ledger)
    clock.advance(61)
    return made


def test_a_healthy_holder_completes(ledger: Ledger):
    made = running(ledger)
    assert ledger.complete(made.fence, 1, gate=True).status == "succeeded"
    assert types(ledger, made.id) == ["enqueued", "claimed", "started", "succeeded"]
    assert ledger.check(made.id) == []


def test_a_late_holder_completes_only_without_the_gate(ledger: Ledger, clock: ManualClock):
    made = late(ledger, clock)
    with refused_without_trace(ledger, "gate_denied"):
        ledger.complete(made.fence, 1, gate=True)
    ledger.complete(made.fence, 1)


def test_a_completion_that_was_denied_may_pass_after_a_beat(ledger: Ledger, clock: ManualClock):
    made = late(ledger, clock)
    with refused("gate_denied"):
        ledger.complete(made.fence, 1, gate=True, request_id="r")
    ledger.resume(made.fence)
    done = ledger.complete(made.fence, 1, gate=True, request_id="r")
    assert ledger.complete(made.fence, 1, gate=True, request_id="r") == done
    with refused("invalid_transition"):
        ledger.complete(made.fence, 1, gate=True)


def test_a_clock_that_steps_back_costs_no_attempt(ledger: Ledger, clock: ManualClock):
    """Times of a job never go back, also those of a completion with the gate."""
    made = running(ledger)
    clock.jump(-3_600)
    assert ledger.complete(made.fence, 1, gate=True).status == "succeeded"


def test_an_old_fence_completes_nothing(ledger: Ledger):
    made = running(ledger)
    ledger.release(made.fence)
    claim(ledger, made.id)
    with refused_without_trace(ledger, "fence_lost"):
        ledger.complete(made.fence, 1, gate=True)


def test_the_gate_option_is_a_boolean(ledger: Ledger):
    with refused("validation_error"):
        ledger.complete(running(ledger).fence, 1, gate=1)  # type: ignore[arg-type]
