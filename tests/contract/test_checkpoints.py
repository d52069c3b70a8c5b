"""Checkpoints: state for the next attempt. A checkpoint counts as progress."""

from typing import Any

import pytest

from holdfast import Fence, Ledger, Raw
from holdfast.core.limits import CHECKPOINT_BYTES_MAX
from holdfast.testing import ManualClock
from tests.contract.builders import WINDOW, WORKER, claim, claimed, held, refused, refused_without_trace, running, running_stalled

TICK_S = 0.000_001


@pytest.mark.parametrize("value", [None, 0, "é\x00", [], {"page": [1, None]}], ids=repr)
def test_any_json_value_is_returned_unchanged(ledger: Ledger, value: Any):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint=value)
    job = ledger.get(made.id)
    assert (job.checkpoint, job.has_checkpoint) == (value, True)
    assert ledger.check(made.id) == []


def test_no_checkpoint_differs_from_a_checkpoint_of_none(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, progress=1)
    job = ledger.get(made.id)
    assert (job.checkpoint, job.has_checkpoint) == (None, False)


def test_raw_json_is_kept_unchanged(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint=Raw(b'{"b" : 1.0}'))
    assert ledger.get(made.id).record.checkpoint == b'{"b" : 1.0}'


def test_the_newest_checkpoint_is_returned(ledger: Ledger):
    made = running(ledger)
    for page in range(3):
        ledger.heartbeat(made.fence, checkpoint={"page": page})
    ledger.heartbeat(made.fence, progress=9)
    assert ledger.get(made.id).checkpoint == {"page": 2}


def test_the_heartbeat_event_contains_its_checkpoint(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, stage="TASK", checkpoint=[1])
    assert ledger.events(made.id)[-1].payload == {"stage": "TASK", "checkpoint": [1]}


def _handed_back(ledger: Ledger, clock: ManualClock, fence: Fence) -> None:
    ledger.release(fence)


def _failed(ledger: Ledger, clock: ManualClock, fence: Fence) -> None:
    ledger.fail(fence, "broke", retry_after=0)


def _swept(ledger: Ledger, clock: ManualClock, fence: Fence) -> None:
    clock.advance(31)
    ledger.sweep()
    clock.advance(60)


@pytest.mark.parametrize("lose", [_handed_back, _failed, _swept])
@pytest.mark.parametrize("start", [False, True])
def test_the_next_claim_gets_the_checkpoint(ledger: Ledger, clock: ManualClock, lose: Any, start: bool):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint={"page": 7}, undo={"kind": "delete"})
    lose(ledger, clock, made.fence)
    [job] = ledger.claim("w-2", [ledger.get(made.id).queue], start=start)
    assert (job.attempt, job.checkpoint, job.undo_owed) == (2, {"page": 7}, 1)
    assert ledger.get(made.id).record == job.record
    assert ledger.check(made.id) == []


def test_a_claim_by_id_gets_the_checkpoint(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint=7)
    ledger.release(made.fence)
    assert ledger.claim_job(made.id, "w-2").checkpoint == 7


def test_a_claim_of_many_jobs_gets_each_jobs_checkpoint(ledger: Ledger):
    ids = [ledger.enqueue("walk", {"n": n}, queue="many").id for n in range(6)]
    for job in ledger.claim(WORKER, ["many"], limit=6, start=True):
        if job.id % 2:
            ledger.heartbeat(held(job), checkpoint={"of": job.id})
        ledger.release(held(job))
    found = {job.id: job.checkpoint for job in ledger.claim("w-2", ["many"], limit=6)}
    assert found == {id_: {"of": id_} if id_ % 2 else None for id_ in ids}


def test_a_stalled_holder_may_save_a_checkpoint(ledger: Ledger):
    made = running_stalled(ledger)
    assert ledger.heartbeat(made.fence, checkpoint=7).status == "stalled"
    assert ledger.get(made.id).checkpoint == 7


def test_a_holder_may_save_a_checkpoint_before_its_start(ledger: Ledger):
    made = claimed(ledger)
    ledger.heartbeat(made.fence, checkpoint=7)
    assert ledger.get(made.id).checkpoint == 7


def test_an_older_fence_cannot_save_a_checkpoint(ledger: Ledger):
    made = running(ledger)
    ledger.release(made.fence)
    claim(ledger, made.id, "w-2")
    with refused_without_trace(ledger, "fence_lost"):
        ledger.heartbeat(made.fence, checkpoint=7)


def test_a_checkpoint_renews_the_lease(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(20)
    beat = ledger.heartbeat(made.fence, checkpoint=7)
    assert beat.lease_expires_at is not None
    assert (beat.lease_expires_at - clock.now()).total_seconds() == 60


def test_a_replay_starts_without_a_checkpoint(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint=7, undo={"kind": "delete"})
    ledger.fail(made.fence, "no", retryable=False)
    fresh = ledger.replay(made.id)
    assert (fresh.has_checkpoint, fresh.undo_owed) == (False, 0)


def test_a_checkpoint_has_a_size_limit(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint="x" * (CHECKPOINT_BYTES_MAX - 2))
    with refused_without_trace(ledger, "limit_exceeded") as caught:
        ledger.heartbeat(made.fence, checkpoint="x" * (CHECKPOINT_BYTES_MAX - 1))
    assert caught.value.context["limit"] == CHECKPOINT_BYTES_MAX


@pytest.mark.parametrize("value", [float("nan"), 2**60, {1: 2}, object()], ids=["nan", "long", "key", "object"])
def test_values_that_are_not_json_are_refused(ledger: Ledger, value: Any):
    made = running(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.heartbeat(made.fence, checkpoint=value)


# Requests


def test_a_repeated_request_records_one_heartbeat(ledger: Ledger):
    made = running(ledger)
    first = ledger.heartbeat(made.fence, checkpoint=7, request_id="r")
    assert ledger.heartbeat(made.fence, checkpoint=7, request_id="r") == first
    with refused("idempotency_conflict"):
        ledger.heartbeat(made.fence, checkpoint=8, request_id="r")
    assert len(ledger.events(made.id, types=["heartbeat"])) == 1


def test_a_heartbeat_with_a_checkpoint_has_a_request_id(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint=7)
    assert ledger.events(made.id)[-1].request_id is not None


# Retention


def test_retention_deletes_all_but_the_newest_checkpoint(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    for number in (1, 2):
        ledger.heartbeat(made.fence, checkpoint=number)
    for number in (1, 2):
        ledger.heartbeat(made.fence, progress=number)
    clock.advance(1)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 2}
    assert [list(event.payload) for event in ledger.events(made.id, types=["heartbeat"])] == [
        ["pruned"],
        ["checkpoint"],
        ["pruned"],
        ["progress"],
    ]
    assert ledger.get(made.id).checkpoint == 2
    assert ledger.check(made.id) == []


# Limits of progress


@pytest.mark.parametrize(
    "said", [{"progress": 7}, {"stage": "A"}, {"progress": 7, "stage": "A"}, {"undo": {"kind": "d"}}], ids=str
)
def test_repeating_the_same_progress_does_not_prevent_a_stall(ledger: Ledger, clock: ManualClock, said: dict[str, Any]):
    made = running(ledger, policy={"progress_timeout": 40} | WINDOW)
    ledger.heartbeat(made.fence, **said)
    for _ in range(2):
        clock.advance(20)
        ledger.heartbeat(made.fence, **said)
    clock.advance(TICK_S)
    assert ledger.sweep() == {"stalled": 1}
    assert ledger.get(made.id).stall_reason == "NO_PROGRESS"
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("moves", ["progress", "stage", "checkpoint"])
def test_new_progress_prevents_a_stall(ledger: Ledger, clock: ManualClock, moves: str):
    made = running(ledger, policy={"progress_timeout": 40})
    for number in range(6):
        clock.advance(20)
        said: dict[str, Any] = {"progress": number, "stage": f"S{number}", "checkpoint": "same"}
        ledger.heartbeat(made.fence, **{moves: said[moves]})
        assert ledger.sweep() == {}
    assert ledger.check(made.id) == []


# Requests for assistance


def test_a_request_for_assistance_is_marked_on_its_first_heartbeat(ledger: Ledger):
    made = running(ledger)
    for wanted in (False, True, True, False, True):
        ledger.heartbeat(made.fence, assist_requested=wanted)
    reasons = [event.reason for event in ledger.events(made.id, types=["heartbeat"])]
    assert reasons == [None, "ASSIST_REQUESTED", None, None, "ASSIST_REQUESTED"]
    assert ledger.check(made.id) == []
