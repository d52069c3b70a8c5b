"""The queue, the priority and the time of a queued job can be changed."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Job, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import BUILDERS, refused


def test_a_moved_job_is_claimed_from_its_new_queue(ledger: Ledger):
    job = ledger.enqueue("k")
    moved = ledger.move(job.id, "fetch", reason="wrong queue")
    assert (moved.queue, moved.rev, ledger.get(job.id).queue) == ("fetch", 2, "fetch")
    assert ledger.claim("w", [job.queue]) == []
    [held] = ledger.claim("w", ["fetch"], start=True)
    assert held.id == job.id
    ledger.complete(held.fence, None)
    event = ledger.events(job.id, types=["moved"])[0]
    assert (event.payload, event.reason) == ({"queue": "fetch", "from_queue": job.queue}, "wrong queue")
    assert ledger.check(job.id) == []


def payloads_of(ledger: Ledger, job_id: int) -> list[dict[str, Any]]:
    return [event.payload for event in ledger.events(job_id, types=["moved"])]


def test_a_job_is_moved_to_another_worker_and_to_any(ledger: Ledger):
    job = ledger.enqueue("k", {"n": 1}, for_worker="gone", requires=["gpu"], partition="p")
    moved = ledger.move(job.id, for_worker="here", reason="gone is broken")
    assert (moved.for_worker, moved.requires, moved.partition, moved.queue, moved.rev) == ("here", ("gpu",), "p", job.queue, 2)
    assert ledger.get(job.id) == moved
    assert ledger.claim("gone", labels=["gpu"]) == ledger.claim("here") == []
    freed = ledger.move(job.id, for_worker=None)
    assert (freed.for_worker, freed.requires, freed.rev) == (None, ("gpu",), 3)
    assert payloads_of(ledger, job.id) == [
        {"queue": job.queue, "from_queue": job.queue, "for_worker": "here", "from_worker": "gone"},
        {"queue": job.queue, "from_queue": job.queue, "for_worker": "", "from_worker": "here"},
    ]
    assert ledger.events(job.id)[0].payload["flow"]["requires"] == ["worker:gone", "gpu"]
    [held] = ledger.claim("any", labels=["gpu"], start=True)
    assert (held.id, held.args) == (job.id, {"n": 1})
    ledger.complete(held.fence, None)
    assert ledger.check(job.id) == []


def test_a_job_is_moved_to_a_queue_and_a_worker_at_once(ledger: Ledger):
    job = ledger.enqueue("k", for_worker="gone", dedupe_key="d")
    moved = ledger.move(job.id, "fetch", for_worker="w")
    assert (moved.queue, moved.for_worker, moved.rev) == ("fetch", "w", 2)
    assert ledger.move(job.id, "other").for_worker == "w"
    assert payloads_of(ledger, job.id) == [
        {"queue": "fetch", "from_queue": job.queue, "for_worker": "w", "from_worker": "gone"},
        {"queue": "other", "from_queue": "fetch"},
    ]
    assert ledger.claim("gone", ["other"]) == ledger.claim("w", [job.queue]) == []
    assert [found.id for found in ledger.claim("w", ["other"])] == [job.id]
    assert ledger.check(job.id) == []


def test_the_jobs_of_a_worker_that_is_gone_are_freed_at_once(ledger: Ledger):
    jobs = [ledger.enqueue("k", for_worker="gone").id for _ in range(3)]
    assert {job.for_worker for job in ledger.on_jobs("move", jobs, for_worker="w") if isinstance(job, Job)} == {"w"}
    assert {job.for_worker for job in ledger.on_jobs("move", jobs, for_worker=None) if isinstance(job, Job)} == {None}
    assert sorted(job.id for job in ledger.claim("any", limit=5)) == jobs


def test_a_job_stays_with_its_worker_if_nothing_changes(ledger: Ledger):
    job, plain = ledger.enqueue("k", for_worker="w"), ledger.enqueue("k")
    assert ledger.move(job.id, for_worker="w").rev == ledger.move(job.id, job.queue, for_worker="w").rev == 1
    assert ledger.move(plain.id, for_worker=None).rev == 1
    for fields in ({}, {"for_worker": ""}, {"for_worker": 7}):
        with refused("validation_error"):
            ledger.move(job.id, **fields)


def test_a_repeated_request_moves_to_a_worker_once(ledger: Ledger):
    job = ledger.enqueue("k")
    assert ledger.move(job.id, for_worker="w", request_id="r").rev == ledger.move(job.id, for_worker="w", request_id="r").rev == 2
    for other in ({"for_worker": None}, {"for_worker": "v"}, {"queue": "w"}):
        with refused("idempotency_conflict"):
            ledger.move(job.id, request_id="r", **other)


def test_a_later_call_and_a_replay_go_on_from_the_worker_of_the_move(ledger: Ledger):
    job = ledger.enqueue("k", {"n": 1}, for_worker="gone", dedupe_key="d", dedupe_for="1h")
    ledger.move(job.id, for_worker="w")
    change: dict[str, Any] = {"dedupe_key": "d", "on_duplicate": "replace"}
    replaced = ledger.enqueue("k", {"n": 2}, for_worker="v", **change)
    assert (replaced.id, replaced.for_worker, replaced.args) == (job.id, "v", {"n": 2})
    ledger.move(job.id, for_worker="w")
    assert (ledger.get(job.id).for_worker, ledger.get(job.id).args) == ("w", {"n": 2})
    ledger.cancel(job.id)
    assert ledger.replay(job.id).for_worker == "w"
    assert ledger.check(job.id) == []


def test_a_higher_priority_goes_first(ledger: Ledger):
    first, second = ledger.enqueue("k"), ledger.enqueue("k")
    ledger.reprioritise(second.id, 5)
    assert [job.id for job in ledger.claim("w", [first.queue], limit=2)] == [second.id, first.id]
    assert ledger.check(second.id) == []


def test_a_rescheduled_job_waits_for_its_time(ledger: Ledger, clock: ManualClock):
    job = ledger.enqueue("k")
    ledger.reschedule(job.id, delay="1m")
    assert ledger.claim("w", [job.queue]) == []
    assert ledger.reschedule(job.id, available_at=clock.now() + timedelta(seconds=30)).available_at > clock.now()
    clock.advance(30)
    assert [found.id for found in ledger.claim("w", [job.queue])] == [job.id]
    later = ledger.enqueue("k", delay="1h")
    ledger.reschedule(later.id)
    assert [found.id for found in ledger.claim("w")] == [later.id]
    assert ledger.check(job.id) == ledger.check(later.id) == []


@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"queued"}))
def test_a_held_or_finished_job_cannot_be_moved(ledger: Ledger, name: str):
    job = BUILDERS[name](ledger)
    before = ledger.get(job.id)
    for ask in (
        lambda: ledger.move(job.id, "other"),
        lambda: ledger.reprioritise(job.id, 7),
        lambda: ledger.reschedule(job.id, delay=1),
    ):
        with refused("invalid_transition"):
            ask()
    assert ledger.get(job.id) == before


def test_a_dedupe_key_in_the_new_queue_is_a_conflict(ledger: Ledger):
    there = ledger.enqueue("k", queue="fetch", dedupe_key="d")
    here = ledger.enqueue("k", dedupe_key="d")
    with refused("conflict") as caught:
        ledger.move(here.id, "fetch")
    assert caught.value.context["holder_id"] == there.id
    ledger.cancel(there.id)
    assert ledger.move(here.id, "fetch").queue == "fetch"
    assert ledger.enqueue("k", queue="fetch", dedupe_key="d").id == here.id


def test_a_repeated_request_moves_once(ledger: Ledger):
    job = ledger.enqueue("k")
    assert ledger.move(job.id, "a", request_id="r").rev == 2
    ledger.move(job.id, "b")
    assert ledger.move(job.id, "a", request_id="r").queue == "a"
    assert ledger.get(job.id).queue == "b"
    with refused("idempotency_conflict"):
        ledger.move(job.id, "c", request_id="r")


def test_a_job_that_waits_for_dependencies_cannot_be_rescheduled(ledger: Ledger):
    first = ledger.enqueue("k")
    waiting = ledger.enqueue("k", depends_on=[first.id])
    with refused("invalid_transition"):
        ledger.reschedule(waiting.id)
    assert ledger.move(waiting.id, "other").waits_for == (first.id,)
    [held] = ledger.claim("w", [first.queue], start=True)
    ledger.complete(held.fence, None)
    assert [job.id for job in ledger.claim("w", ["other"])] == [waiting.id]
    assert ledger.check(waiting.id) == []


@pytest.mark.parametrize(("fields", "code"), [({"delay": -1}, "limit_exceeded"), ({"available_at": "soon"}, "validation_error")])
def test_an_invalid_time_is_refused(ledger: Ledger, fields: dict[str, Any], code: str):
    job = ledger.enqueue("k")
    with refused(code) as caught:
        ledger.reschedule(job.id, **fields)
    assert caught.value.context["field"] in fields
    assert ledger.get(job.id).rev == 1


def test_a_delay_and_a_time_together_are_refused(ledger: Ledger, clock: ManualClock):
    with refused("validation_error"):
        ledger.reschedule(ledger.enqueue("k").id, delay=1, available_at=clock.now())
