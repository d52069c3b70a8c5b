"""Undo steps in heartbeats, their limits, and when they are due. The contract suite tests the verbs."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.limits import UNDO_STEPS_MAX
from holdfast.core.model import SYSTEM, UNDO_KIND, EventType, Policy
from holdfast.core.undo import has_undo_due, undo_command, undo_note
from tests.unit.histories import OPERATOR, STEP, T0, WINDOW, History, code_of

ONCE = Policy(attempts_max=1)
COMPENSATE = c.Compensate(actor=SYSTEM, request_id="tick", job_id=7)


def _owing() -> History:
    return History(WINDOW, priority=3, tier="in_home").start().beat(undo=STEP)


# Undo steps


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
