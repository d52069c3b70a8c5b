"""Checkpoints, undo steps and requests for assistance in heartbeats, and their effects."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.decide import enqueued_event
from holdfast.core.evolve import evolve
from holdfast.core.limits import UNDO_STEPS_MAX
from holdfast.core.model import SYSTEM, UNDO_KIND, EventType, FailureStage, JobRecord, Policy, ReasonCode, Status
from holdfast.core.undo import has_undo_due, undo_command, undo_key, undo_note
from tests.unit.histories import CLIENT, OPERATOR, SECOND, STEP, T0, WINDOW, History, code_of

ONCE = Policy(attempts_max=1)
COMPENSATE = c.Compensate(actor=SYSTEM, request_id="tick", job_id=7)


def _step(number: int) -> payloads.UndoStep:
    return payloads.UndoStep(kind="delete", args=msgspec.Raw(b'{"n": %d}' % number))


def _owing() -> History:
    return History(WINDOW, priority=3, tier="in_home").start().beat(undo=STEP)


# Checkpoints


def test_a_checkpoint_stays_until_the_next():
    history = History().start().beat(checkpoint=msgspec.Raw(b"1")).beat(progress=1).do(c.Release).start()
    assert history.job.checkpoint == b"1"
    assert history.beat(checkpoint=msgspec.Raw(b"null")).job.checkpoint == b"null"


def test_a_checkpoint_is_progress_each_time():
    history = History().start().beat(checkpoint=msgspec.Raw(b"1")).wait(5).beat(checkpoint=msgspec.Raw(b"1"))
    assert history.job.progressed_at == T0 + 5 * SECOND


def test_repeated_values_are_not_progress():
    history = History().start().beat(progress=1, stage="A").wait(5).beat(progress=1, stage="A", undo=STEP)
    assert history.job.progressed_at == T0


@pytest.mark.parametrize(("body", "found"), [(None, None), (b"{}", None), (b'{"checkpoint":[1, 2]}', b"[1, 2]")])
def test_a_checkpoint_is_found_in_its_beat(body: bytes | None, found: bytes | None):
    assert payloads.checkpoint_of(body) == found


# Undo steps


def test_steps_add_up_over_attempts():
    assert _owing().do(c.Release).start().beat(undo=STEP).job.undo_owed == 2


@pytest.mark.parametrize(
    ("end", "owed"),
    [
        (lambda history: history.complete(), 0),
        (lambda history: history.fail(retryable=False), 1),
        (lambda history: history.cancel(hard=True), 1),
        (lambda history: history.cancel(hard=True).do(c.Annotate, actor=OPERATOR, note=EventType.DISCARDED), 1),
        (lambda history: history.cancel(hard=True).do(c.Annotate, actor=OPERATOR, note=EventType.COMPENSATED), 0),
        (lambda history: history.cancel(hard=True).do(c.Annotate, actor=OPERATOR, note=EventType.COMPENSATION_FAILED), 0),
    ],
    ids=["succeeded", "failed", "cancelled", "discarded", "compensated", "given up"],
)
def test_an_end_clears_or_keeps_the_steps_to_undo(end: Any, owed: int):
    history = end(_owing())
    assert (history.job.undo_owed, has_undo_due(history.job)) == (owed, owed > 0)


def test_a_live_job_has_no_undo_due():
    assert not has_undo_due(_owing().job)


def test_an_undo_job_has_no_steps_of_its_own():
    assert code_of(History(kind=UNDO_KIND).start(), c.Heartbeat, beat=payloads.BeatPayload(undo=STEP)) == "validation_error"


def test_steps_have_a_limit():
    history = History().start()
    history.job = msgspec.structs.replace(history.job, undo_owed=UNDO_STEPS_MAX - 1)
    history.beat(undo=STEP)
    assert code_of(history, c.Heartbeat, beat=payloads.BeatPayload(undo=STEP)) == "limit_exceeded"
    assert history.beat().job.undo_owed == UNDO_STEPS_MAX


@pytest.mark.parametrize(
    ("beat", "step"),
    [
        (payloads.BeatPayload(progress=1), None),
        (payloads.BeatPayload(checkpoint=msgspec.Raw(b'{"undo":1}')), None),
        (payloads.BeatPayload(undo=STEP), STEP),
    ],
    ids=["plain", "look-alike", "step"],
)
def test_a_step_is_found_in_its_beat(beat: payloads.BeatPayload, step: payloads.UndoStep | None):
    assert payloads.undo_step(beat.encode()) == step


def test_beats_with_checkpoints_steps_or_assistance_are_not_plain():
    cold = [
        payloads.BeatPayload(checkpoint=msgspec.Raw(b"1")),
        payloads.BeatPayload(undo=STEP),
        payloads.BeatPayload(assist_requested=True),
    ]
    assert [beat.is_plain for beat in cold] == [False] * 3
    assert payloads.BeatPayload(stage="A", progress=1, assist_requested=False).is_plain


# The undo job


def _made(command: c.Enqueue) -> JobRecord:
    return evolve(None, enqueued_event(8, command, T0, command.correlation_id or ""))


def test_an_undo_job_inherits_from_its_original():
    job = _owing().fail(retryable=False).job
    undo = _made(undo_command(job, [_step(1), _step(2)], COMPENSATE, T0))
    assert (undo.kind, undo.queue, undo.priority, undo.tier) == (UNDO_KIND, "q", 3, "in_home")
    assert (undo.correlation_id, undo.trace_id) == (job.correlation_id, job.trace_id)
    assert (undo.dedupe_key, undo.dedupe_forever, undo.override) == (undo_key(7), True, None)


def test_steps_are_undone_in_reverse_order():
    undo = _made(undo_command(_owing().cancel(hard=True).job, [_step(1), _step(2)], COMPENSATE, T0))
    assert undo.args == b'{"job_id":7,"steps":[{"kind":"delete","args":{"n": 2}},{"kind":"delete","args":{"n": 1}}]}'


def test_an_undo_job_does_not_wait_if_the_holder_ended_the_job():
    job = _owing().fail(retryable=False).job
    assert undo_command(job, [STEP], COMPENSATE, T0).available_at is None


def test_an_undo_job_waits_for_the_lease_after_other_ends():
    job = _owing().cancel(hard=True).job
    lease = job.last_lease_expires_at
    assert lease is not None
    assert undo_command(job, [STEP], COMPENSATE, T0).available_at == lease
    assert undo_command(job, [STEP], COMPENSATE, lease).available_at is None


@pytest.mark.parametrize(
    ("end", "note", "reason"),
    [
        (lambda history: history, None, None),
        (lambda history: history.complete(), EventType.COMPENSATED, None),
        (lambda history: history.fail(retryable=False), EventType.COMPENSATION_FAILED, "failed"),
        (lambda history: history.fail(), EventType.COMPENSATION_FAILED, "dead_lettered"),
    ],
    ids=["live", "succeeded", "failed", "exhausted"],
)
def test_the_end_of_an_undo_job_is_noted(end: Any, note: EventType | None, reason: str | None):
    found = undo_note(end(History(ONCE, kind=UNDO_KIND).start()).job, COMPENSATE)
    assert (found and (found.note, found.reason, found.job_id)) == (note and (note, reason, 7))


# compensation_failed


@pytest.mark.parametrize("policy", [ONCE, Policy(attempts_max=1, on_exhausted="fail")], ids=["dead_letter", "fail"])
def test_an_exhausted_undo_job_has_the_reason_compensation_failed(policy: Policy):
    job = History(policy, kind=UNDO_KIND).start().fail().job
    assert (job.status, job.reason_code, job.failure_stage) == (Status.DEAD_LETTERED, "compensation_failed", "exec")


FAILED = ReasonCode.COMPENSATION_FAILED


def test_only_an_undo_job_is_dead_lettered_as_compensation_failed():
    history, dead = History().start(), {"actor": OPERATOR, "failure_stage": FailureStage.EXEC}
    assert code_of(history, c.DeadLetter, reason_code=FAILED, **dead) == "validation_error"
    assert code_of(history, c.Fail, error=b"{}", reason_code=FAILED) == "validation_error"
    assert History(kind=UNDO_KIND).do(c.DeadLetter, reason_code=FAILED, **dead).job.reason_code == "compensation_failed"


# Requests for assistance


def test_a_request_for_assistance_is_marked_on_its_first_beat():
    history = History().start().beat(assist_requested=True).beat(assist_requested=True).beat(assist_requested=False)
    history.beat(assist_requested=True).beat()
    assert [event.reason for event in history.events[3:]] == ["ASSIST_REQUESTED", None, None, "ASSIST_REQUESTED", None]


def test_a_request_for_assistance_begins_again_with_each_attempt():
    history = History().start().beat(assist_requested=True).do(c.Release).start().beat(assist_requested=True)
    assert history.events[-1].reason == "ASSIST_REQUESTED"


def test_a_cancel_keeps_the_request_for_assistance():
    assert History().start().beat(assist_requested=True).cancel(actor=CLIENT).job.assist_requested
