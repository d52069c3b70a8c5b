"""Undo steps in heartbeats, their limits, and when they are due. The contract suite tests the verbs."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.limits import UNDO_STEPS_MAX
from holdfast.core.model import SYSTEM, UNDO_KIND
from holdfast.core.undo import has_undo_due, undo_note
from tests.unit.histories import STEP, History, code_of


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


def test_an_undo_job_that_is_live_gives_no_note():
    assert undo_note(History(kind=UNDO_KIND).start().job, c.Compensate(actor=SYSTEM, request_id="tick", job_id=7)) is None


def test_undo_is_due_for_an_ended_job_with_steps_only():
    stepped = History().start().beat(undo=STEP)
    assert [has_undo_due(job) for job in (History().cancel().job, stepped.job, stepped.cancel(hard=True).job)] == [
        False,
        False,
        True,
    ]
