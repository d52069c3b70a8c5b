"""Undo steps: registered with heartbeats, run in reverse by an undo job, and noted on the first job."""

from typing import Any

import pytest

from holdfast import HeldJob, Job, Ledger, Raw
from holdfast.core.limits import UNDO_BYTES_MAX
from holdfast.testing import ManualClock
from tests.contract.builders import (
    Made,
    held,
    refused,
    refused_without_trace,
    running,
    running_stalled,
    succeeded,
    trace,
    types,
)

UNDO = {"kind": "delete_file", "args": {"path": "a"}}


def _step(number: int) -> dict[str, Any]:
    return {"kind": "delete_file", "args": {"n": number}}


def _with_undo_steps(ledger: Ledger, count: int = 2, **options: Any) -> Made:
    made = running(ledger, **options)
    for number in range(count):
        ledger.heartbeat(made.fence, undo=_step(number))
    return made


def _undo_jobs(ledger: Ledger) -> list[Job]:
    return ledger.list(kind="holdfast.undo")


def _failed(ledger: Ledger, **options: Any) -> Made:
    made = _with_undo_steps(ledger, **options)
    ledger.fail(made.fence, "no", retryable=False)
    return made


# Registering


def test_steps_are_read_in_the_order_they_were_registered(ledger: Ledger):
    made = _with_undo_steps(ledger, 3)
    assert ledger.undo_steps(made.id) == [_step(0), _step(1), _step(2)]
    assert ledger.get(made.id).undo_owed == 3
    assert ledger.check(made.id) == []


def test_args_may_be_left_out_or_raw(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, undo={"kind": "a"})
    ledger.heartbeat(made.fence, undo={"kind": "b", "args": Raw(b'{"n" : 1}')})
    assert ledger.undo_steps(made.id) == [{"kind": "a", "args": {}}, {"kind": "b", "args": {"n": 1}}]


def test_steps_are_kept_in_later_attempts(ledger: Ledger):
    made = _with_undo_steps(ledger, 1)
    ledger.release(made.fence)
    [job] = ledger.claim("w-2", [ledger.get(made.id).queue], start=True)
    ledger.heartbeat(held(job), undo=_step(1))
    assert ledger.undo_steps(made.id) == [_step(0), _step(1)]


def test_a_stalled_holder_may_register_a_step(ledger: Ledger):
    made = running_stalled(ledger)
    ledger.heartbeat(made.fence, undo=UNDO)
    assert ledger.get(made.id).undo_owed == 1


def test_a_job_without_steps_has_an_empty_list(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, checkpoint={"undo": {"kind": "no"}})
    assert ledger.undo_steps(made.id) == []
    with refused("not_found"):
        ledger.undo_steps(999_999)


def test_a_repeated_request_registers_a_step_once(ledger: Ledger):
    made = running(ledger)
    first = ledger.heartbeat(made.fence, undo=UNDO, request_id="r")
    assert ledger.heartbeat(made.fence, undo=UNDO, request_id="r") == first
    with refused("idempotency_conflict"):
        ledger.heartbeat(made.fence, undo=_step(9), request_id="r")
    assert ledger.undo_steps(made.id) == [UNDO]


def test_a_request_with_the_drawn_id_registers_a_step_once(ledger: Ledger):
    made = running(ledger)
    first = ledger.heartbeat(made.fence, undo=UNDO)
    assert ledger.heartbeat(made.fence, undo=UNDO, request_id=ledger.events(made.id)[-1].request_id) == first
    assert ledger.undo_steps(made.id) == [UNDO]


SHAPES: dict[str, Any] = {
    "a text": "delete",
    "empty": {},
    "no kind": {"args": {}},
    "an empty kind": {"kind": ""},
    "a kind that is no text": {"kind": 7},
    "a list": {"kind": "a", "args": [1]},
    "null": {"kind": "a", "args": None},
    "a raw list": {"kind": "a", "args": Raw(b"[1]")},
    "something else": {"kind": "a", "then": 1},
}


@pytest.mark.parametrize("undo", SHAPES.values(), ids=SHAPES)
def test_invalid_steps_are_refused(ledger: Ledger, undo: Any):
    made = running(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.heartbeat(made.fence, undo=undo)


def test_the_args_of_a_step_have_a_size_limit(ledger: Ledger):
    made = running(ledger)
    room = UNDO_BYTES_MAX - len('{"x":""}')
    ledger.heartbeat(made.fence, undo={"kind": "a", "args": {"x": "x" * room}})
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.heartbeat(made.fence, undo={"kind": "a", "args": {"x": "x" * (room + 1)}})


# Starting


def _cancelled(ledger: Ledger, made: Made) -> None:
    ledger.cancel(made.id, hard=True)


def _dead(ledger: Ledger, made: Made) -> None:
    ledger.dead_letter(made.id, reason_code="timeout")


def _given_up(ledger: Ledger, made: Made) -> None:
    ledger.fail(made.fence, "no", retryable=False)


@pytest.mark.parametrize("end", [_cancelled, _dead, _given_up])
def test_a_job_that_did_not_succeed_is_undone_once(ledger: Ledger, end: Any):
    made = _with_undo_steps(ledger, priority=4, tier="in_home", correlation_id="order-7", trace_id="t")
    assert ledger.sweep() == {}
    end(ledger, made)
    job, before = ledger.get(made.id), types(ledger, made.id)
    assert ledger.sweep() == {"enqueued": 1}
    assert ledger.sweep() == {}
    [undo] = _undo_jobs(ledger)
    assert undo.args == {"job_id": made.id, "steps": [_step(1), _step(0)]}
    assert (undo.queue, undo.priority, undo.tier) == (job.queue, 4, "in_home")
    assert (undo.correlation_id, undo.trace_id, undo.status) == ("order-7", "t", "queued")
    assert ledger.events(undo.id)[0].actor == "system:ledger"
    assert types(ledger, made.id) == before
    assert ledger.check(undo.id) == ledger.check(made.id) == []


def test_a_success_has_no_steps_to_undo(ledger: Ledger):
    made = _with_undo_steps(ledger)
    ledger.complete(made.fence)
    assert ledger.get(made.id).undo_owed == 0
    assert ledger.undo_steps(made.id) == [_step(0), _step(1)]
    assert ledger.sweep() == {}
    assert ledger.check(made.id) == []


def test_an_undo_job_shares_a_derived_correlation(ledger: Ledger):
    made = _failed(ledger)
    ledger.sweep()
    assert _undo_jobs(ledger)[0].correlation_id == ledger.get(made.id).correlation_id


def test_an_undo_job_does_not_wait_if_the_holder_ended_the_job(ledger: Ledger, clock: ManualClock):
    _failed(ledger)
    ledger.sweep()
    assert _undo_jobs(ledger)[0].available_at == clock.now()


def test_an_undo_job_waits_for_the_lease_after_other_ends(ledger: Ledger, clock: ManualClock):
    made = _with_undo_steps(ledger)
    clock.advance(10)
    ledger.cancel(made.id, hard=True)
    ledger.sweep()
    [undo] = _undo_jobs(ledger)
    assert (undo.available_at - clock.now()).total_seconds() == 50
    assert ledger.claim("w-2", [undo.queue]) == []
    clock.advance(50)
    assert [job.id for job in ledger.claim("w-2", [undo.queue])] == [undo.id]


def test_an_undo_job_does_not_wait_for_an_expired_lease(ledger: Ledger, clock: ManualClock):
    made = _with_undo_steps(ledger, policy={"attempts_max": 1})
    clock.advance(100)
    assert ledger.sweep() == {"stalled": 1, "dead_lettered": 1, "enqueued": 1}
    assert _undo_jobs(ledger)[0].available_at == clock.now()
    assert ledger.get(made.id).status == "dead_lettered"


def test_a_sweep_enqueues_at_most_a_hundred_undo_jobs(ledger: Ledger):
    ledger.enqueue_many({"kind": "k", "queue": "many"} for _ in range(103))
    for job in ledger.claim("w-1", ["many"], limit=103):
        ledger.heartbeat(held(job), undo=UNDO)
        ledger.cancel(job.id)
    assert [ledger.sweep().get("enqueued") for _ in range(3)] == [100, 3, None]


def test_the_limit_of_a_sweep_applies_to_undo_jobs(ledger: Ledger):
    for _ in range(3):
        _failed(ledger)
    assert [ledger.sweep(limit=2).get("enqueued") for _ in range(3)] == [2, 1, None]


# Ending


def _undo_held(ledger: Ledger, made: Made) -> HeldJob:
    ledger.sweep()
    return ledger.claim("w-2", [ledger.get(made.id).queue], start=True)[0]


def test_a_succeeded_undo_job_is_noted(ledger: Ledger):
    made = _failed(ledger)
    undo = _undo_held(ledger, made)
    assert ledger.sweep() == {}
    ledger.complete(held(undo))
    assert ledger.sweep() == {"compensated": 1}
    assert ledger.sweep() == {}
    job = ledger.get(made.id)
    assert (job.status, job.note, job.undo_owed) == ("failed", "compensated", 0)
    assert ledger.events(made.id)[-1].actor == "system:ledger"
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("end", [_cancelled, _given_up, _dead])
def test_a_failed_undo_job_is_noted(ledger: Ledger, end: Any):
    made = _failed(ledger)
    undo = _undo_held(ledger, made)
    end(ledger, Made(undo.id, held(undo)))
    assert ledger.sweep() == {"compensation_failed": 1}
    assert ledger.sweep() == {}
    assert (ledger.get(made.id).note, ledger.events(made.id)[-1].reason) == (
        "compensation_failed",
        ledger.get(undo.id).status,
    )
    assert ledger.check(made.id) == []


def test_a_handler_may_write_the_note_itself(ledger: Ledger):
    made = _failed(ledger)
    undo = _undo_held(ledger, made)
    ledger.annotate(made.id, "compensated")
    ledger.complete(held(undo))
    assert ledger.sweep() == {}
    assert types(ledger, made.id).count("compensated") == 1


def test_an_exhausted_undo_job_has_the_reason_compensation_failed(ledger: Ledger, clock: ManualClock):
    ledger.set_policy("holdfast.undo", attempts_max=2, on_exhausted="fail")
    made = _failed(ledger)
    undo = _undo_held(ledger, made)
    ledger.fail(held(undo), "disk gone")
    clock.advance(60)
    again = ledger.claim_job(undo.id, "w-2")
    ledger.start(held(again))
    job = ledger.fail(held(again), "disk gone")
    assert job.dead_letter is not None
    assert (job.status, job.dead_letter["reason_code"]) == ("dead_lettered", "compensation_failed")
    assert ledger.check(undo.id) == []


def test_a_dead_undo_job_may_be_replayed(ledger: Ledger):
    made = _failed(ledger)
    undo = _undo_held(ledger, made)
    ledger.fail(held(undo), "disk gone", retryable=False, reason_code="compensation_failed")
    ledger.sweep()
    fresh = ledger.replay(undo.id)
    assert (fresh.kind, fresh.args) == ("holdfast.undo", undo.args)
    ledger.annotate(made.id, "compensated")
    assert ledger.sweep() == {}
    assert types(ledger, made.id)[-2:] == ["compensation_failed", "compensated"]


def test_an_undo_job_has_no_steps_of_its_own(ledger: Ledger):
    undo = _undo_held(ledger, _failed(ledger))
    with refused_without_trace(ledger, "validation_error"):
        ledger.heartbeat(held(undo), undo=UNDO)


# Reserved names


@pytest.mark.parametrize("kind", ["holdfast.undo", "holdfast.", "holdfast.demo.digest"])
def test_reserved_kinds_are_refused(ledger: Ledger, kind: str):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue(kind)
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue_many([{"kind": "k", "args": {}, "queue": "default"}, {"kind": kind, "args": {}, "queue": "default"}])


def test_reserved_keys_are_refused(ledger: Ledger):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue("k", dedupe_key="holdfast.undo/1")


def test_only_undo_jobs_may_have_the_reason_compensation_failed(ledger: Ledger):
    made = running(ledger)
    before = trace(ledger)
    for retryable in (True, False):
        with refused("validation_error"):
            ledger.fail(made.fence, "no", retryable=retryable, reason_code="compensation_failed")
    with refused("validation_error"):
        ledger.dead_letter(made.id, reason_code="compensation_failed")
    assert trace(ledger) == before


# Retention


def test_steps_are_never_stripped(ledger: Ledger, clock: ManualClock):
    made = _with_undo_steps(ledger)
    ledger.heartbeat(made.fence, progress=1)
    ledger.heartbeat(made.fence, progress=2)
    clock.advance(1)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 1}
    assert ledger.undo_steps(made.id) == [_step(0), _step(1)]
    assert ledger.check(made.id) == []


def test_a_job_with_steps_to_undo_is_kept_with_its_undo_job(ledger: Ledger, clock: ManualClock):
    made = _failed(ledger)
    other = succeeded(ledger)
    undo = _undo_held(ledger, made)
    ledger.fail(held(undo), "no", retryable=False)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now(), failed_before=clock.now()) == {"jobs": 1, "failed": 0}
    with refused("not_found"):
        ledger.get(other.id)
    assert ledger.sweep() == {"compensation_failed": 1}
    assert ledger.prune(jobs_before=clock.now(), failed_before=clock.now()) == {"jobs": 0, "failed": 2}
    assert ledger.sweep() == {}
