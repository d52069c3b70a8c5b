"""Stalling, resuming and requeuing: by which roles, and from which time on."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Actor, Ledger, Role
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    WORKER,
    Made,
    aborting,
    assisted,
    claimed,
    claimed_stalled,
    refused,
    refused_without_trace,
    running,
    running_stalled,
    types,
)

STALL_AFTER_S = 30
TICK_S = 0.000_001

# The limit


@pytest.mark.parametrize("build", [claimed, running])
def test_at_the_limit_a_job_is_not_stalled_yet(ledger: Ledger, clock: ManualClock, build):
    made = build(ledger)
    clock.advance(STALL_AFTER_S)
    assert ledger.sweep() == {}
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id)


@pytest.mark.parametrize(
    ("build", "reason"),
    [(claimed, "LEASE_EXPIRED"), (running, "NO_HEARTBEAT"), (assisted, "NO_HEARTBEAT"), (aborting, "NO_HEARTBEAT")],
)
def test_past_the_limit_a_job_is_stalled(ledger: Ledger, clock: ManualClock, build, reason: str):
    made = build(ledger)
    clock.advance(STALL_AFTER_S + TICK_S)
    job = ledger.stall(made.id)
    assert (job.status, job.stall_reason, job.owner, job.last_owner) == ("stalled", reason, None, WORKER)
    assert ledger.check(made.id) == []


FINDERS: dict[str, Callable[[Ledger, Made], Any]] = {
    "sweep": lambda ledger, made: ledger.sweep(),
    "stall by id": lambda ledger, made: ledger.stall(made.id),
    "stall by id, another silence named": lambda ledger, made: ledger.stall(made.id, reason="LEASE_EXPIRED"),
    "stall by id, silence named": lambda ledger, made: ledger.stall(made.id, reason="NO_HEARTBEAT"),
    "claim by id": lambda ledger, made: ledger.claim_job(made.id, "w-2"),
    "late beat": lambda ledger, made: ledger.heartbeat(made.fence),
}


@pytest.mark.parametrize("find", FINDERS.values(), ids=list(FINDERS))
def test_silence_has_the_same_reason_however_it_is_found(ledger: Ledger, clock: ManualClock, find: Callable[..., Any]):
    for tier in (None, "in_home", "hospitality", "a tier of one's own"):
        made = running(ledger, tier=tier, policy={"resume_window": 0})
        clock.advance(181)
        find(ledger, made)
        [stalled] = ledger.events(made.id, types=["stalled"])
        assert stalled.reason == "NO_HEARTBEAT"
        assert ledger.check(made.id) == []


@pytest.mark.parametrize("find", [*FINDERS.values(), lambda ledger, made: ledger.start(made.fence)], ids=[*FINDERS, "late start"])
def test_a_claim_that_never_started_stalls_with_lease_expired(ledger: Ledger, clock: ManualClock, find: Callable[..., Any]):
    made = claimed(ledger, tier="in_home", policy={"resume_window": 0})
    clock.advance(91)
    find(ledger, made)
    [stalled] = ledger.events(made.id, types=["stalled"])
    assert stalled.reason == "LEASE_EXPIRED"
    assert ledger.check(made.id) == []


def test_not_stalled_yet_has_the_time_of_the_limit(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    with refused("not_stalled_yet") as caught:
        ledger.stall(made.id)
    expected = int(clock.now().timestamp() + STALL_AFTER_S) * 1_000_000
    assert caught.value.context["limit"] == expected


def test_silence_is_the_reason_if_the_lease_ends_at_the_same_time(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"heartbeat_interval": 20, "missed_beats_max": 3, "lease_ttl": 60})
    clock.advance(60 + TICK_S)
    assert ledger.stall(made.id).stall_reason == "NO_HEARTBEAT"


def test_a_given_reason_does_not_change_the_limit(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(STALL_AFTER_S)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id, reason="OPERATOR_QUEUE_TIMEOUT")


def test_a_heartbeat_moves_the_limit(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(20)
    ledger.heartbeat(made.fence)
    clock.advance(STALL_AFTER_S)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id)


@pytest.mark.parametrize("missed", [1, 2, 3])
def test_missed_beats_times_the_interval_is_the_limit(ledger: Ledger, clock: ManualClock, missed: int):
    made = running(ledger, policy={"heartbeat_interval": 10, "missed_beats_max": missed})
    clock.advance(10 * missed)
    with refused("not_stalled_yet"):
        ledger.stall(made.id)
    clock.advance(TICK_S)
    assert ledger.stall(made.id).status == "stalled"


def test_the_stall_event_has_the_policy_of_the_lease(ledger: Ledger, clock: ManualClock):
    made = running(ledger, kind="walk", policy={"heartbeat_interval": 5} | WINDOW)
    ledger.set_policy("walk", heartbeat_interval=50)
    clock.advance(15 + TICK_S)
    ledger.sweep()
    claimed_event, stalled_event = (event for event in ledger.events(made.id) if event.type in ("claimed", "stalled"))
    assert stalled_event.payload["policy"] == claimed_event.payload["policy"]
    assert stalled_event.payload["policy"]["stall_after_ms"] == 15_000


def test_a_holder_may_give_a_reason_in_the_words_of_a_dialect(ledger: Ledger):
    made = running(ledger)
    assert ledger.stall(made.fence, reason="ROBOT_ERROR").stall_reason == "WORKER_ERROR"


# Alive but no progress


def test_beats_without_progress_stall_a_job(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy={"progress_timeout": 40} | WINDOW)
    for _ in range(2):
        clock.advance(20)
        ledger.heartbeat(made.fence)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id)
    clock.advance(TICK_S)
    ledger.sweep()
    assert ledger.get(made.id).stall_reason == "NO_PROGRESS"
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("moved", [{"stage": "LATER"}, {"progress": 8}])
def test_progress_moves_the_limit_of_progress(ledger: Ledger, clock: ManualClock, moved):
    made = running(ledger, policy={"progress_timeout": 40})
    clock.advance(25)
    ledger.heartbeat(made.fence, **moved)
    clock.advance(25)
    ledger.heartbeat(made.fence)
    assert ledger.sweep() == {}
    clock.advance(15 + TICK_S)
    ledger.heartbeat(made.fence, **moved)
    assert ledger.stall(made.id).stall_reason == "NO_PROGRESS"


def test_a_claimed_job_has_no_limit_of_progress(ledger: Ledger, clock: ManualClock):
    made = claimed(ledger, policy={"progress_timeout": 20})
    clock.advance(21)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id)


@pytest.mark.parametrize("reason", ["NO_HEARTBEAT", "LEASE_EXPIRED", "WORKER_ERROR"])
def test_lack_of_progress_is_not_recorded_as_silence(ledger: Ledger, clock: ManualClock, reason: str):
    made = running(ledger, policy={"progress_timeout": 20})
    clock.advance(20 + TICK_S)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id, reason=reason)


def test_silence_is_not_recorded_as_lack_of_progress(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(STALL_AFTER_S + 1)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.stall(made.id, reason="NO_PROGRESS")


# Resuming


def test_the_system_resumes_only_after_a_beat_received_after_the_stall(ledger: Ledger):
    made = running_stalled(ledger)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.resume(made.id)
    ledger.heartbeat(made.fence)
    job = ledger.resume(made.id)
    assert (job.status, job.phase, job.owner, job.attempt) == ("running", "executing", WORKER, 1)
    assert ledger.check(made.id) == []


def test_a_beat_before_the_stall_does_not_allow_a_resume(ledger: Ledger):
    made = running(ledger, policy=WINDOW)
    ledger.heartbeat(made.fence)
    ledger.stall(made.fence)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.resume(made.id)


def test_a_beat_after_an_earlier_stall_does_not_allow_a_resume(ledger: Ledger):
    made = running_stalled(ledger)
    ledger.heartbeat(made.fence)
    ledger.resume(made.id)
    ledger.stall(made.fence)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.resume(made.id)


def test_the_system_does_not_resume_an_attempt_that_had_not_started(ledger: Ledger):
    made = claimed_stalled(ledger)
    ledger.heartbeat(made.fence)
    assert ledger.sweep() == {}
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.resume(made.id)


def test_a_resume_gives_a_new_lease(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    clock.advance(50)
    job = ledger.resume(made.fence)
    assert job.claim_expires_at is not None
    assert (job.claim_expires_at - clock.now()).total_seconds() == 60


# The resume window


def test_without_a_resume_window_one_sweep_stalls_and_requeues(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(STALL_AFTER_S + TICK_S)
    assert ledger.sweep() == {"stalled": 1, "requeued": 1}
    assert types(ledger, made.id)[-2:] == ["stalled", "requeued"]
    assert ledger.check(made.id) == []


def test_a_stalled_job_waits_within_its_resume_window(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    clock.advance(60 - TICK_S)
    assert ledger.sweep() == {}
    clock.advance(TICK_S)
    assert ledger.sweep() == {"requeued": 1}
    assert ledger.get(made.id).status == "queued"


def test_a_requeued_job_waits_for_its_backoff(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger)
    wait = (ledger.requeue(made.id).available_at - clock.now()).total_seconds()
    assert 0.25 <= wait <= 0.75


def test_the_sweep_resumes_a_beating_job_before_it_exhausts_it(ledger: Ledger, clock: ManualClock):
    made = running_stalled(ledger, policy={"attempts_max": 1} | WINDOW)
    clock.advance(120)
    ledger.heartbeat(made.fence)
    assert ledger.sweep() == {"resumed": 1}
    assert ledger.get(made.id).status == "running"


def test_a_sweep_handles_no_more_than_its_limit(ledger: Ledger, clock: ManualClock):
    for _ in range(3):
        running(ledger)
    clock.advance(STALL_AFTER_S + 1)
    assert ledger.sweep(limit=2) == {"stalled": 2, "requeued": 2}
    assert ledger.sweep(limit=2) == {"stalled": 1, "requeued": 1}
    assert ledger.sweep(limit=2) == {}


def test_the_system_actor_may_have_another_name(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(STALL_AFTER_S + 1)
    ledger.stall(made.id, actor=Actor(Role.SYSTEM, "watchdog"))
    assert ledger.events(made.id)[-1].actor == "system:watchdog"


def test_a_holder_that_stalls_may_give_an_error(ledger: Ledger) -> None:
    made = claimed(ledger)
    ledger.stall(made.fence, error=OSError("no network"))
    assert ledger.get(made.id).last_error == {"type": "OSError", "message": "no network"}
    assert ledger.check(made.id) == []


def test_only_a_holder_may_give_an_error(ledger: Ledger) -> None:
    made = claimed(ledger)
    with refused("validation_error"):
        ledger.stall(made.id, error="guess")
