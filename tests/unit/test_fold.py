"""Folding a history gives the row, field for field."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history, fold
from holdfast.core.evolve import PHASE_TYPES, evolve, phase_after
from holdfast.core.model import SYSTEM, EventType, FailureStage, Phase, Policy, ReasonCode, StallReason, Status
from tests.unit.histories import ERROR, OPERATOR, SECOND, STEP, T0, WINDOW, History, rich

HISTORIES = {
    "queued": History,
    "claimed": lambda: History().claim(),
    "running": lambda: History().start(),
    "beaten": lambda: History().start().wait(2).beat(stage="A").wait(2).beat(progress=4, assist_requested=True),
    "assisted": lambda: History().start().do(c.Assist, actor=OPERATOR, on=True),
    "stalled": lambda: History(WINDOW).start().stall(),
    "revived": lambda: History(WINDOW).start().stall().wait(1).beat(),
    "resumed": lambda: History(WINDOW).start().stall().do(c.Resume),
    "released": lambda: History().start().do(c.Release),
    "failed once": lambda: History().start().fail(),
    "succeeded": lambda: History().start().complete(b'{"a": 1}'),
    "failed": lambda: History().start().fail(retryable=False),
    "aborting": lambda: History().start().cancel(),
    "cancelled": lambda: History().cancel(),
    "dead": lambda: History().do(c.DeadLetter, actor=SYSTEM, reason_code=ReasonCode.TIMEOUT, failure_stage=FailureStage.EXEC),
    "marked": lambda: History().start().beat(checkpoint=msgspec.Raw(b"null"), undo=STEP, assist_requested=True),
    "compensated": lambda: (
        History().start().beat(undo=STEP).cancel(hard=True).do(c.Annotate, actor=SYSTEM, note=EventType.COMPENSATED)
    ),
    "noted": lambda: History().cancel().do(c.Annotate, actor=OPERATOR, note=EventType.COMPENSATED),
    "resumed while assisted": lambda: History(WINDOW).start().do(c.Assist, actor=OPERATOR, on=True).stall().do(c.Resume),
    "resumed while aborting": lambda: History(WINDOW).start().cancel().stall().do(c.Resume),
    "assisted no more": lambda: History().start().do(c.Assist, actor=OPERATOR, on=True).do(c.Assist, actor=OPERATOR, on=False),
    "claimed again": lambda: History().start().do(c.Release).start(),
    "rich": rich,
}


@pytest.mark.parametrize("make", HISTORIES.values(), ids=HISTORIES)
def test_the_fold_is_the_row(make):
    history = make()
    folded = fold(history.events)
    assert folded is not None
    assert msgspec.structs.replace(folded, token=history.job.token) == history.job


@pytest.mark.parametrize("make", HISTORIES.values(), ids=HISTORIES)
def test_the_phase_follows_from_the_event_types_alone(make):
    job, phase = None, None
    for event in make().events:
        job, phase = evolve(job, event), phase_after(phase, event.type)
        assert phase is job.phase


def test_only_some_event_types_change_the_phase():
    changing = {kind for kind in EventType for phase in (None, *Phase) if phase_after(phase, kind) is not phase}
    assert changing == PHASE_TYPES


@pytest.mark.parametrize("make", HISTORIES.values(), ids=HISTORIES)
def test_the_events_of_decide_are_valid(make):
    history = make()
    assert check_history(history.events, history.job) == []


def test_an_empty_history_gives_no_job():
    assert fold([]) is None


def test_a_job_starts_with_the_values_of_its_enqueue():
    options = {
        "priority": 3,
        "dedupe_key": "d",
        "dedupe_forever": True,
        "tier": "t",
        "policy": msgspec.Raw(b'{"attempts_max":2}'),
    }
    job = History(**options).job
    assert (job.priority, job.dedupe_key, job.dedupe_forever, job.tier, job.override) == (
        3,
        "d",
        True,
        "t",
        b'{"attempts_max":2}',
    )
    assert (job.status, job.rev, job.attempt, job.created_at, job.available_at) == (Status.QUEUED, 1, 0, T0, T0)


@pytest.mark.parametrize(("options", "at"), [({"delay_us": 5}, T0 + 5), ({"available_at": 99}, 99), ({}, T0)], ids=str)
def test_a_job_waits_for_its_time(options, at):
    assert History(**options).job.available_at == at


def test_each_claim_clears_the_state_of_the_last_attempt():
    history = History().start().beat(stage="A", progress=1, assist_requested=True).do(c.Release).wait(1).claim()
    job = history.job
    assert (job.stage, job.progress, job.assist_requested, job.started_at, job.stall_reason) == (None, None, False, None, None)
    assert (job.attempt, job.last_owner, job.claimed_at, job.progressed_at) == (2, "w-1", history.now, history.now)


def test_a_lease_is_counted_from_the_ledgers_time():
    job = History().claim().job
    assert (job.last_beat_at, job.lease_expires_at) == (T0, T0 + 60 * SECOND)
    job = History().claim().wait(5).do(c.Start).job
    assert (job.started_at, job.lease_expires_at) == (T0 + 5 * SECOND, T0 + 65 * SECOND)


@pytest.mark.parametrize(
    ("second", "moved"),
    [({}, False), ({"stage": "A"}, False), ({"stage": "B"}, True), ({"progress": 1}, False), ({"progress": 2}, True)],
    ids=str,
)
def test_only_changed_values_are_progress(second, moved: bool):
    history = History().start().wait(1).beat(stage="A", progress=1).wait(1).beat(**second)
    assert history.job.progressed_at == T0 + (2 if moved else 1) * SECOND


def test_a_beat_keeps_values_that_it_does_not_have():
    job = History().start().beat(stage="A", progress=1, assist_requested=True).beat().job
    assert (job.stage, job.progress, job.assist_requested) == ("A", 1, True)


def test_a_beat_of_a_stalled_job_does_not_renew_the_lease():
    history = History(WINDOW).start().stall().wait(3).beat()
    job = history.job
    assert (job.lease_expires_at, job.owner, job.revived_at, job.last_beat_at) == (None, None, history.now, history.now)


def test_a_stall_clears_owner_and_lease_and_keeps_the_last_owner():
    job = History(WINDOW).start().stall().job
    assert (job.owner, job.lease_expires_at, job.last_owner, job.last_lease_expires_at) == (None, None, "w-1", T0 + 60 * SECOND)
    assert (job.incarnation, job.token, job.stall_reason) == ("boot-1", "token-1", "WORKER_ERROR")


@pytest.mark.parametrize(("on", "phase"), [(True, Phase.ASSISTED), (None, Phase.EXECUTING)], ids=["assisted", "plain"])
def test_a_stall_keeps_the_phase(on, phase: Phase):
    history = History(WINDOW).start()
    if on:
        history.do(c.Assist, actor=OPERATOR, on=True)
    assert history.stall().job.phase is phase


def test_a_stall_before_the_start_has_a_phase():
    assert History(WINDOW).claim().stall().job.phase is Phase.EXECUTING


def test_a_resume_of_an_unstarted_attempt_starts_it():
    history = History(WINDOW).claim().stall().wait(1).do(c.Resume)
    assert (history.job.started_at, history.job.owner) == (history.now, "w-1")


def test_a_resume_keeps_the_start_time():
    assert History(WINDOW).start().wait(1).stall().do(c.Resume).job.started_at == T0


def test_a_requeue_ends_the_fence():
    job = History().start().fail().job
    assert (job.token, job.phase, job.last_error, job.stall_reason) == (None, None, ERROR, StallReason.TRANSIENT_ERROR)


def test_releases_are_counted():
    assert History().start().do(c.Release).wait(1).start().do(c.Release).job.releases == 2


def test_an_end_by_the_holder_keeps_its_fence():
    assert History().start().complete().job.token is not None
    assert History().start().cancel(hard=True).job.token is None


def test_a_result_may_be_null_but_is_set():
    assert History().start().complete(b"null").job.result == b"null"


def test_a_dead_letter_without_error_has_none():
    history = History().do(c.DeadLetter, actor=OPERATOR, reason_code=ReasonCode.TIMEOUT, failure_stage=FailureStage.EXEC)
    assert history.job.last_error is None
    body = payloads.decode(payloads.DeadLetteredPayload, history.events[-1].payload)
    assert (body.attempts, body.last_owner, body.last_lease_expires_at, body.correlation_id) == (0, None, None, "corr-7")
    assert b'"last_error":null' in (history.events[-1].payload or b"")


def test_a_note_is_on_the_job():
    assert HISTORIES["noted"]().job.note == "compensated"


def test_the_id_of_an_event_is_job_and_revision():
    assert [event.id for event in History().claim().events] == ["7-1", "7-2"]


def test_the_context_of_a_refusal_names_the_holder():
    assert History().claim().job.held_by == {
        "job_id": 7,
        "status": "claimed",
        "attempt": 1,
        "rev": 2,
        "holder": "w-1",
        "lease_expires_at": T0 + 60 * SECOND,
    }


def test_a_policy_computes_its_stall_after():
    assert Policy(heartbeat_interval_ms=5_000, missed_beats_max=2).stall_after_ms == 10_000


def test_a_fence_hides_its_token():
    assert "token-1" not in repr(History().claim().fence)


@pytest.mark.parametrize("args", [b"{}", b'{"a":[1,{"args":2}]}', b'{"b": 1.50}'])
def test_arguments_are_read_from_the_payload_of_the_enqueue_as_they_came(args: bytes) -> None:
    payload = payloads.EnqueuedPayload(queue="q", kind="k", args=msgspec.Raw(args), priority=3, tier="t").encode()
    assert payloads.args_of(payload) == args
