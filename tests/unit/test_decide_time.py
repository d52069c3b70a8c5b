"""decide(job, command, now): time limits, sweeps and ends of jobs."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.deadlines import progress_limit, resume_window_ends_at, stall_limit
from holdfast.core.decide import replay_command
from holdfast.core.model import SYSTEM, Phase, Policy, ReasonCode, StallReason, Status
from holdfast.errors import HoldfastError
from tests.unit.histories import CLIENT, ERROR, OPERATOR, SECOND, T0, WINDOW, History, code_of

replace = msgspec.structs.replace

# Limits of silence


def test_a_job_stalls_at_the_limit_of_silence_or_the_end_of_the_lease():
    assert stall_limit(History().start().job) == T0 + 30 * SECOND
    assert stall_limit(History(Policy(heartbeat_interval_ms=40_000)).start().job) == T0 + 60 * SECOND


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(), "NO_HEARTBEAT"),
        (Policy(heartbeat_interval_ms=40_000), "LEASE_EXPIRED"),
        (Policy(lease_ttl_ms=30_000), "NO_HEARTBEAT"),
    ],
    ids=["silence", "lease", "both"],
)
def test_the_reason_is_the_limit_passed_first(policy: Policy, reason: str):
    assert History(policy).start().wait(130).do(c.Stall, actor=SYSTEM).events[-1].reason == reason


def test_a_claim_that_never_started_stalls_with_lease_expired():
    assert History().claim().wait(31).do(c.Stall, actor=SYSTEM).events[-1].reason == "LEASE_EXPIRED"


def test_progress_has_a_limit_only_if_the_policy_sets_one():
    policy = Policy(progress_timeout_ms=20_000)
    assert progress_limit(History().start().job) is None
    assert progress_limit(History(policy).claim().job) is None
    assert progress_limit(replace(History(policy).start().job, progressed_at=None)) is None
    assert progress_limit(History(policy).start().job) == T0 + 20 * SECOND


@pytest.mark.parametrize(
    ("wanted", "seconds", "reason"),
    [
        (None, 20, None),
        (None, 20.000001, "NO_PROGRESS"),
        (StallReason.NO_PROGRESS, 21, "NO_PROGRESS"),
        (StallReason.NO_PROGRESS, 31, "NO_PROGRESS"),
        (StallReason.NO_HEARTBEAT, 21, None),
        (StallReason.OPERATOR_QUEUE_TIMEOUT, 21, None),
        (StallReason.OPERATOR_QUEUE_TIMEOUT, 31, "OPERATOR_QUEUE_TIMEOUT"),
        (None, 31, "NO_HEARTBEAT"),
    ],
)
def test_the_system_stalls_past_the_limit_of_its_reason(wanted: StallReason | None, seconds: float, reason: str | None):
    history = History(Policy(progress_timeout_ms=20_000)).start().wait(seconds)
    if reason is None:
        assert code_of(history, c.Stall, actor=SYSTEM, reason=wanted) == "not_stalled_yet"
    else:
        assert history.do(c.Stall, actor=SYSTEM, reason=wanted).job.stall_reason == reason


def test_the_window_is_counted_from_the_stall():
    assert resume_window_ends_at(History(WINDOW).start().wait(5).stall().job) == T0 + 65 * SECOND


# The sweep


def test_a_sweep_changes_nothing_if_nothing_is_due():
    history = History().start().wait(30).sweep()
    assert history.types == ["enqueued", "claimed", "started"]
    assert History().sweep().types == ["enqueued"]


def test_a_fresh_interval_delays_the_stall():
    history = History().start().wait(100)
    assert history.sweep(fresh_since=history.now).types[-1] == "started"
    assert history.wait(30).sweep(fresh_since=history.now - 30 * SECOND).types[-1] == "started"
    assert history.wait(1).sweep(fresh_since=history.now - 31 * SECOND).types[-1] == "requeued"


def test_the_sweep_waits_for_the_window():
    history = History(WINDOW).start().wait(31).sweep()
    assert (history.types[-1], history.wait(59).sweep().types[-1], history.wait(1).sweep().types[-1]) == (
        "stalled",
        "stalled",
        "requeued",
    )


def test_a_beat_of_an_unstarted_attempt_does_not_resume_it():
    assert History(WINDOW).claim().stall().beat().sweep().types[-1] == "heartbeat"


def test_an_aborting_job_is_cancelled_after_its_grace():
    history = History().start().cancel(reason="enough").wait(25).beat().wait(5).sweep()
    assert history.types[-1] == "heartbeat"
    history.wait(0.000001).sweep()
    assert (history.job.status, history.job.cancel_reason) == (Status.CANCELLED, "enough")


def test_a_stalled_aborting_job_is_cancelled_at_the_end_of_grace_or_window():
    policy = Policy(resume_window_ms=10_000, cancel_grace_ms=60_000)
    assert History(policy).start().cancel().stall().wait(10).sweep().job.status is Status.CANCELLED
    policy = Policy(resume_window_ms=60_000, cancel_grace_ms=10_000)
    assert History(policy).start().cancel().stall().wait(11).sweep().job.status is Status.CANCELLED


def test_an_exhausted_stall_without_error_fails_with_its_reason():
    job = History(Policy(attempts_max=1, on_exhausted="fail")).start().wait(31).sweep().job
    assert (job.status, job.last_error) == (Status.FAILED, b'{"message":"stalled: NO_HEARTBEAT"}')


# Endings


def test_backoff_comes_from_policy_and_jitter():
    history = History().start().fail(jitter=1.5)
    assert history.job.available_at == T0 + 750_000
    assert History().start().fail(retry_after_us=9).job.available_at == T0 + 9


def test_a_dead_letter_without_a_stage_has_the_stage_exec():
    job = History().start().fail(retryable=False, reason_code=ReasonCode.PARSE_ERROR).job
    assert (job.reason_code, job.failure_stage, job.last_error) == ("parse_error", "exec", ERROR)


def test_a_late_resume_records_the_stall_first():
    assert History().start().wait(61).do(c.Resume).types[-2:] == ["stalled", "resumed"]


def test_a_late_beat_before_the_start_is_evidence_only():
    history = History(WINDOW).claim().wait(61).beat()
    assert (history.types[-2:], history.job.status, history.job.revived_at) == (
        ["stalled", "heartbeat"],
        Status.STALLED,
        history.now,
    )


def test_a_late_start_is_a_return():
    assert History().claim().wait(61).do(c.Start).types[-2:] == ["stalled", "resumed"]


def test_a_release_of_an_unstarted_stalled_job_only_requeues():
    history = History(WINDOW).claim().stall().do(c.Release)
    assert (history.types[-2:], history.job.releases, history.job.available_at) == (["stalled", "requeued"], 1, T0)


def test_a_release_while_aborting_cancels():
    assert History().start().cancel().do(c.Release).types[-2:] == ["stalled", "cancelled"]


def test_a_second_soft_cancel_changes_nothing():
    history = History().start().cancel()
    assert history.cancel().types == history.types
    assert history.job.phase is Phase.ABORTING


# Replays


@pytest.mark.parametrize("forever", [False, True])
def test_a_replay_has_the_options_of_its_original(forever: bool):
    options = {
        "priority": 3,
        "tier": "t",
        "dedupe_key": "d",
        "dedupe_forever": forever,
        "policy": msgspec.Raw(b'{"attempts_max":2}'),
    }
    job = History(**options).cancel().job
    made = replay_command(job, c.Replay(actor=OPERATOR, job_id=7))
    assert (made.priority, made.tier, made.replay_of, made.override) == (3, "t", 7, b'{"attempts_max":2}')
    assert made.dedupe_key == (None if forever else "d")
    body = payloads.decode(payloads.EnqueuedPayload, made.payload)
    assert (bytes(body.args), body.replay_of, body.dedupe_key) == (b'{"n":1}', 7, made.dedupe_key)


@pytest.mark.parametrize("history", [History(), History().start().complete()], ids=["queued", "succeeded"])
def test_only_jobs_that_did_not_succeed_are_replayed(history: History):
    with pytest.raises(HoldfastError) as caught:
        replay_command(history.job, c.Replay(actor=OPERATOR, job_id=7))
    assert caught.value.code == "invalid_transition"


def test_only_an_operator_replays():
    with pytest.raises(HoldfastError) as caught:
        replay_command(History().cancel().job, c.Replay(actor=CLIENT, job_id=7))
    assert caught.value.code == "forbidden"
