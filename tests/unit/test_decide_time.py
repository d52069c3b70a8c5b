"""decide(job, command, now): time limits, sweeps and ends of jobs."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.deadlines import progress_limit, resume_window_ends_at, stall_limit
from holdfast.core.model import SYSTEM, Policy, StallReason, Status
from tests.unit.histories import SECOND, T0, WINDOW, History, code_of

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


def test_a_fresh_interval_delays_the_stall():
    history = History().start().wait(100)
    assert history.sweep(fresh_since=history.now).types[-1] == "started"
    assert history.wait(30).sweep(fresh_since=history.now - 30 * SECOND).types[-1] == "started"
    assert history.wait(1).sweep(fresh_since=history.now - 31 * SECOND).types[-1] == "requeued"


def test_a_stalled_aborting_job_is_cancelled_at_the_end_of_grace_or_window():
    policy = Policy(resume_window_ms=10_000, cancel_grace_ms=60_000)
    assert History(policy).start().cancel().stall().wait(10).sweep().job.status is Status.CANCELLED
    policy = Policy(resume_window_ms=60_000, cancel_grace_ms=10_000)
    assert History(policy).start().cancel().stall().wait(11).sweep().job.status is Status.CANCELLED
