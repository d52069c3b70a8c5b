"""Receipts from a job's row, and completions that check the gate."""

import hashlib

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.liveness import check_gate, episode_id, receipt_of, tick
from holdfast.core.model import Fence, Policy, StallReason
from holdfast.errors import GateDenied
from holdfast.liveness import HealthVerdict, LivenessHeartbeatReceiptV1
from tests.unit.histories import SECOND, T0, WINDOW, History

PAYLOAD = b'{"result":1}'


def of(history: History) -> LivenessHeartbeatReceiptV1 | None:
    return receipt_of(history.job, history.now)


def verdict(history: History) -> HealthVerdict:
    found = of(history)
    assert found is not None
    return found.health_verdict


def test_the_receipt_of_a_running_job():
    history = History().start().wait(5).beat(stage="TASK", progress=3).wait(2)
    job = history.job
    assert job.token is not None
    assert of(history) == LivenessHeartbeatReceiptV1(
        run_id=f"{job.id}-1",
        episode_id=hashlib.sha256(f"holdfast episode v1\n{job.id}\n1\n{job.token}\n".encode()).digest(),
        emitted_at_tick=(T0 + 5 * SECOND) // 1_000,
        time_envelope_ref=hashlib.sha256(b'holdfast beat v1\n[%d,1,%d,"TASK",3]' % (job.id, T0 + 5 * SECOND)).digest(),
        health_verdict=HealthVerdict.HEALTHY,
        restart_count=0,
        max_restarts=4,
        uptime_ms=5_000,
        detail=None,
    )


def test_each_beat_and_each_fence_has_its_own_receipt():
    first = of(History().start())
    later = of(History().start().wait(1).beat())
    assert first is not None and later is not None
    assert first.episode_id == later.episode_id
    assert first.time_envelope_ref != later.time_envelope_ref
    fences = [Fence(1, 1, "t"), Fence(11, 1, "t"), Fence(1, 11, "t"), Fence(1, 1, "u")]
    assert len({episode_id(fence) for fence in fences}) == len(fences)


def test_a_claimed_job_has_a_healthy_holder():
    found = of(History().claim())
    assert found is not None
    assert (found.health_verdict, found.uptime_ms) == (HealthVerdict.HEALTHY, 0)


def test_silence_past_the_limit_is_a_stall():
    assert verdict(History().start().wait(30)) is HealthVerdict.HEALTHY
    assert verdict(History().start().wait(30.001)) is HealthVerdict.STALLED


def test_beating_without_progress_past_the_limit_is_a_stall():
    slow = Policy(progress_timeout_ms=5_000)
    assert verdict(History(slow).start().wait(5).beat()) is HealthVerdict.HEALTHY
    assert verdict(History(slow).start().wait(6).beat()) is HealthVerdict.STALLED


def test_a_stalled_job_has_a_stalled_receipt():
    assert verdict(History(WINDOW).start().do(c.Stall, reason=StallReason.TRANSIENT_ERROR)) is HealthVerdict.STALLED


def test_a_holder_that_reported_an_error_has_crashed():
    assert verdict(History(WINDOW).start().do(c.Stall)) is HealthVerdict.CRASHED


def test_a_beat_after_a_stall_gives_an_ambiguous_receipt():
    assert verdict(History(WINDOW).start().do(c.Stall).beat()) is HealthVerdict.AMBIGUOUS


@pytest.mark.parametrize(
    "history",
    [History(), History().start().do(c.Release), History().start().do(c.Complete, payload=PAYLOAD)],
    ids=["queued", "released", "succeeded"],
)
def test_a_job_without_a_holder_has_no_receipt(history: History):
    assert of(history) is None
    with pytest.raises(GateDenied) as caught:
        check_gate(history.job, None, history.now)
    assert (caught.value.context["reason"], caught.value.context["receipt"]) == ("ambiguous_state", None)


def test_releases_do_not_count_as_restarts():
    found = of(History().start().do(c.Release).start())
    assert found is not None
    assert (found.run_id.rpartition("-")[2], found.restart_count) == ("2", 0)


def test_a_receipt_that_passes_is_returned():
    history = History().start().wait(30)
    assert check_gate(history.job, of(history), history.now) is not None


def test_a_refusal_has_all_facts():
    history = History().start().wait(31)
    receipt = of(history)
    assert receipt is not None
    with pytest.raises(GateDenied) as caught:
        check_gate(history.job, receipt, history.now)
    assert caught.value.context == {
        "job_id": history.job.id,
        "reason": "unhealthy_verdict",
        "detail": "stalled: silent past its stall limit",
        "receipt": receipt.to_object(),
    }


def test_a_receipt_kept_too_long_is_stale():
    history = History().start()
    kept = of(history)
    with pytest.raises(GateDenied) as caught:
        check_gate(history.job, kept, history.wait(31).now)
    assert caught.value.context["reason"] == "stale_heartbeat"


def test_more_attempts_than_allowed_are_denied():
    history = History().start()
    job = msgspec.structs.replace(history.job, attempt=6)
    with pytest.raises(GateDenied) as caught:
        check_gate(job, receipt_of(job, history.now), history.now)
    assert caught.value.context["reason"] == "restart_limit_exceeded"


def test_a_tick_is_a_millisecond():
    assert tick(1_999) == 1
