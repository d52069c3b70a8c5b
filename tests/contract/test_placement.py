"""The queue, the priority and the time of a queued job can be changed."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import BUILDERS, refused


def test_a_moved_job_is_claimed_from_its_new_queue(ledger: Ledger):
    job = ledger.enqueue("k")
    moved = ledger.move(job.id, "fetch", reason="wrong queue")
    assert (moved.queue, moved.rev, ledger.get(job.id).queue) == ("fetch", 2, "fetch")
    assert ledger.claim("w", [job.queue]) == []
    [held] = ledger.claim("w", ["fetch"], start=True)
    assert held.id == job.id and held.fence is not None
    ledger.complete(held.fence, None)
    event = ledger.events(job.id, types=["moved"])[0]
    assert (event.payload, event.reason) == ({"queue": "fetch", "from_queue": job.queue}, "wrong queue")
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
    assert held.fence is not None
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
