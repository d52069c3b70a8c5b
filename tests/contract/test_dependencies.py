"""A job waits until its dependencies have succeeded. If one does not, `on_dependency_failure` decides."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import HoldfastError, Job, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    WORKER,
    Made,
    claim,
    failed,
    queued,
    refused,
    refused_without_trace,
    running,
    succeeded,
    types,
)

BAD_ENDS = ("failed", "cancelled", "dead_lettered")


def after(ledger: Ledger, *on: int, **options: Any) -> int:
    return ledger.enqueue("index_page", depends_on=list(on), **options).id


def complete(ledger: Ledger, job_id: int) -> None:
    fence = claim(ledger, job_id).fence
    ledger.start(fence)
    ledger.complete(fence)


def end(ledger: Ledger, made: Made, how: str) -> None:
    match how:
        case "failed":
            ledger.fail(made.fence, "no", retryable=False)
        case "cancelled":
            ledger.cancel(made.id, hard=True)
        case _:
            ledger.dead_letter(made.id, reason_code="timeout")


def sound(ledger: Ledger) -> None:
    for job in ledger.list(limit=1_000):
        assert ledger.check(job.id) == []


# Waiting


def test_a_job_waits_until_all_its_dependencies_have_succeeded(ledger: Ledger) -> None:
    first, second = running(ledger), running(ledger)
    job = ledger.enqueue("index_page", depends_on=[second.id, first.id])
    assert (job.status, job.depends_on, job.waits_for) == ("queued", (first.id, second.id), (first.id, second.id))
    assert ledger.claim(WORKER) == []
    ledger.complete(second.fence)
    assert ledger.get(job.id).waits_for == (first.id,)
    assert ledger.claim(WORKER) == []
    ledger.complete(first.fence)
    assert ledger.get(job.id).waits_for == ()
    assert ledger.get(job.id).depends_on == (first.id, second.id)
    assert types(ledger, job.id) == ["enqueued", "unblocked"]
    [claimed] = ledger.claim(WORKER)
    assert claimed.id == job.id
    assert ledger.get(job.id) != claimed
    sound(ledger)


def test_the_event_names_its_cause(ledger: Ledger) -> None:
    first = running(ledger)
    job_id = after(ledger, first.id)
    ledger.complete(first.fence, request_id="done")
    event = ledger.events(job_id)[-1]
    assert (str(event.actor), event.request_id) == ("system:ledger", "done")
    assert event.cause == ledger.events(first.id)[-1].id


def test_a_dependency_that_has_succeeded_already_blocks_no_job(ledger: Ledger) -> None:
    first = succeeded(ledger)
    job = ledger.enqueue("index_page", depends_on=[first.id])
    assert (job.waits_for, job.rev, types(ledger, job.id)) == ((), 2, ["enqueued", "unblocked"])
    assert ledger.events(job.id)[-1].cause is None
    assert [found.id for found in ledger.claim(WORKER)] == [job.id]
    sound(ledger)


def test_a_waiting_job_is_counted_as_queued_and_can_be_listed(ledger: Ledger) -> None:
    first = queued(ledger, queue="a")
    job_id = after(ledger, first.id, queue="b")
    assert ledger.counts() == {"a": {"queued": 1}, "b": {"queued": 1}}
    assert [job.id for job in ledger.list(waiting=True)] == [job_id]
    assert [job.id for job in ledger.list(waiting=True, queue="a")] == []
    complete(ledger, first.id)
    assert ledger.list(waiting=True) == []


def test_a_refused_claim_by_id_names_the_dependencies(ledger: Ledger) -> None:
    first = queued(ledger)
    job_id = after(ledger, first.id)
    with refused_without_trace(ledger, "not_claimable") as caught:
        ledger.claim_job(job_id, WORKER)
    assert (caught.value.context["why"], caught.value.context["waits_for"]) == ("dependency", [first.id])


def test_the_delay_of_a_waiting_job_counts_from_its_enqueue(ledger: Ledger, clock: ManualClock) -> None:
    first = running(ledger, policy={"heartbeat_interval": "1h"})
    early, late = after(ledger, first.id, delay="5s"), after(ledger, first.id, delay="90s")
    wanted = clock.now() + timedelta(seconds=90)
    clock.advance(30)
    ledger.complete(first.fence)
    assert ledger.get(early).available_at == clock.now()
    assert ledger.get(late).available_at == wanted
    assert [job.id for job in ledger.claim(WORKER, limit=5)] == [early]
    sound(ledger)


def test_a_retry_of_a_dependency_changes_nothing(ledger: Ledger) -> None:
    first = running(ledger)
    job_id = after(ledger, first.id)
    ledger.fail(first.fence, "again")
    assert ledger.get(job_id).waits_for == (first.id,)


def test_two_dependencies_that_succeed_at_once_unblock_a_job_once(ledger: Ledger) -> None:
    made = [running(ledger) for _ in range(3)]
    job_id = after(ledger, *(one.id for one in made))
    ledger.complete_many([(one.fence, None) for one in made])
    assert types(ledger, job_id) == ["enqueued", "unblocked"]
    sound(ledger)


def test_the_dependents_of_a_job_are_listed(ledger: Ledger) -> None:
    first = running(ledger)
    ids = [after(ledger, first.id) for _ in range(3)]
    assert [job.id for job in ledger.dependents(first.id)] == ids
    assert [job.id for job in ledger.dependents(first.id, after=ids[0], limit=1)] == [ids[1]]
    ledger.complete(first.fence)
    assert [job.id for job in ledger.dependents(first.id)] == ids
    with refused("not_found"):
        ledger.dependents(999_999)


# A dependency that does not succeed


@pytest.mark.parametrize("how", BAD_ENDS)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_dependent_can_keep_waiting(ledger: Ledger, how: str, before: bool) -> None:
    first = BUILDERS[how](ledger) if before else running(ledger)
    job_id = after(ledger, first.id, on_dependency_failure="wait")
    if not before:
        end(ledger, first, how)
    assert (ledger.get(job_id).status, ledger.get(job_id).waits_for) == ("queued", (first.id,))
    sound(ledger)


@pytest.mark.parametrize("how", BAD_ENDS)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_dependent_can_be_cancelled_with_its_dependency(ledger: Ledger, how: str, before: bool) -> None:
    first = BUILDERS[how](ledger) if before else running(ledger)
    job_id = after(ledger, first.id, on_dependency_failure="cancel")
    if not before:
        end(ledger, first, how)
    job = ledger.get(job_id)
    assert (job.status, job.cancel_reason, job.waits_for) == ("cancelled", f"dependency {first.id} {how}", ())
    sound(ledger)


@pytest.mark.parametrize("how", BAD_ENDS)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("choice", [{"on_dependency_failure": "dead_letter"}, {}], ids=["asked for", "by default"])
def test_a_dependent_is_dead_lettered_with_its_dependency_by_default(
    ledger: Ledger, how: str, before: bool, choice: dict[str, str]
) -> None:
    first = BUILDERS[how](ledger) if before else running(ledger)
    job_id = after(ledger, first.id, **choice)
    if not before:
        end(ledger, first, how)
    letter = ledger.get(job_id).dead_letter
    assert letter is not None
    assert (letter["reason_code"], letter["failure_stage"]) == ("dependency_unavailable", "fetch")
    assert letter["last_error"] == {"message": f"dependency {first.id} {how}"}
    sound(ledger)


def test_a_dependency_by_name_has_the_same_default(ledger: Ledger) -> None:
    first = running(ledger)
    items: list[dict[str, Any]] = [
        {"kind": "b", "ref": "b", "depends_on": [first.id]},
        {"kind": "c", "depends_on": ["b"]},
        {"kind": "d"},
    ]
    made = ledger.enqueue_many(items)
    ledger.fail(first.fence, "no", retryable=False)
    assert [ledger.get(job.id).status for job in made] == ["dead_lettered", "dead_lettered", "queued"]
    sound(ledger)


def test_an_end_reaches_indirect_dependents(ledger: Ledger) -> None:
    first = running(ledger)
    second = after(ledger, first.id, on_dependency_failure="cancel")
    third = after(ledger, second, on_dependency_failure="dead_letter")
    fourth = after(ledger, third, on_dependency_failure="wait")
    ledger.cancel(first.id, hard=True)
    assert [ledger.get(id_).status for id_ in (second, third, fourth)] == ["cancelled", "dead_lettered", "queued"]
    assert ledger.get(fourth).waits_for == (third,)
    sound(ledger)


def test_on_dependency_failure_is_not_read_from_the_args(ledger: Ledger) -> None:
    first = running(ledger)
    choice = {"on_dependency_failure": "cancel"}
    patient = ledger.enqueue("index_page", choice, depends_on=[first.id], on_dependency_failure="wait").id
    ledger.cancel(first.id, hard=True)
    assert (ledger.get(patient).status, ledger.get(patient).waits_for) == ("queued", (first.id,))


def test_a_dependent_ends_once_for_the_nearest_failed_dependency(ledger: Ledger) -> None:
    """A job with several dependencies ends because of the first of them, the one nearest to the start of the cascade."""
    first = running(ledger)
    second = after(ledger, first.id, on_dependency_failure="cancel")
    third = after(ledger, second, on_dependency_failure="cancel")
    last = after(ledger, second, third, on_dependency_failure="dead_letter")
    ledger.fail(first.fence, "no", retryable=False, request_id="end")
    assert types(ledger, last) == ["enqueued", "dead_lettered"]
    event = ledger.events(last)[-1]
    assert (str(event.actor), event.request_id, event.cause) == ("system:ledger", "end", ledger.events(second)[-1].id)
    sound(ledger)


def test_a_cancelled_dependent_is_not_changed(ledger: Ledger) -> None:
    first = running(ledger)
    job_id = after(ledger, first.id)
    ledger.cancel(job_id)
    ledger.complete(first.fence)
    assert types(ledger, job_id) == ["enqueued", "cancelled"]
    sound(ledger)


# Replays


def test_a_dependent_follows_the_replay_of_its_dependency(ledger: Ledger) -> None:
    first = running(ledger)
    job_id = after(ledger, first.id, on_dependency_failure="wait")
    ledger.fail(first.fence, "no", retryable=False)
    again = ledger.replay(first.id)
    assert ledger.get(job_id).waits_for == (again.id,)
    assert ledger.get(job_id).depends_on == (first.id,)
    assert [job.id for job in ledger.dependents(again.id)] == [job_id]
    complete(ledger, again.id)
    assert types(ledger, job_id) == ["enqueued", "unblocked"]
    sound(ledger)


def test_a_dependent_enqueued_after_the_replay_follows_it(ledger: Ledger) -> None:
    first = failed(ledger)
    again = ledger.replay(first.id)
    job_id = after(ledger, first.id, again.id, on_dependency_failure="cancel")
    assert ledger.get(job_id).waits_for == (again.id,)
    complete(ledger, again.id)
    assert ledger.get(job_id).waits_for == ()
    assert after(ledger, first.id)
    assert ledger.list(waiting=True) == []
    sound(ledger)


def test_a_replay_has_the_dependencies_of_its_original(ledger: Ledger) -> None:
    first = running(ledger)
    job_id = after(ledger, first.id, on_dependency_failure="dead_letter")
    ledger.fail(first.fence, "no", retryable=False)
    replay = ledger.replay(job_id)
    assert (replay.status, replay.waits_for, replay.on_dependency_failure) == ("queued", (first.id,), "dead_letter")
    again = ledger.replay(first.id)
    assert ledger.get(replay.id).waits_for == (again.id,)
    complete(ledger, again.id)
    assert [job.id for job in ledger.claim(WORKER)] == [replay.id]
    sound(ledger)


def test_a_whole_graph_of_dead_letters_is_replayed(ledger: Ledger) -> None:
    first = running(ledger)
    second = after(ledger, first.id, on_dependency_failure="dead_letter")
    after(ledger, second, on_dependency_failure="dead_letter")
    ledger.dead_letter(first.id, reason_code="timeout")
    replays = [
        replay for replay in ledger.on_jobs("replay", [job.id for job in ledger.dead_letters()]) if isinstance(replay, Job)
    ]
    assert [replay.waits_for for replay in replays] == [(), (replays[0].id,), (replays[1].id,)]
    sound(ledger)


def test_a_replay_does_not_wait_for_pruned_jobs(ledger: Ledger, clock: ManualClock) -> None:
    first = succeeded(ledger)
    job_id = after(ledger, first.id)
    clock.advance(1)
    ledger.prune(jobs_before=clock.now())
    ledger.cancel(job_id)
    assert types(ledger, ledger.replay(job_id).id) == ["enqueued", "unblocked"]
    sound(ledger)


# Refusals


def test_an_unknown_id_is_refused(ledger: Ledger) -> None:
    with refused_without_trace(ledger, "not_found"):
        after(ledger, 999_999)
    with refused_without_trace(ledger, "not_found"):
        ledger.enqueue_many([{"kind": "a", "ref": "a"}, {"kind": "b", "depends_on": ["a", 999_999]}])


@pytest.mark.parametrize("given", ["1", 1, [0], ["a"], [True], [1.0], {"a": 1}], ids=repr)
def test_values_that_are_not_ids_are_refused(ledger: Ledger, given: Any) -> None:
    with pytest.raises(HoldfastError) as caught:
        ledger.enqueue("work", depends_on=given)
    assert caught.value.code in ("validation_error", "limit_exceeded")


def test_an_unknown_on_dependency_failure_is_refused(ledger: Ledger) -> None:
    with refused("validation_error"):
        ledger.enqueue("work", on_dependency_failure="explode")  # type: ignore[arg-type]


def test_more_than_a_thousand_dependencies_are_refused(ledger: Ledger) -> None:
    with refused("limit_exceeded"):
        ledger.enqueue("work", depends_on=list(range(1, 1_002)))


# Many at once


def test_items_of_a_call_depend_on_each_other_in_any_order(ledger: Ledger) -> None:
    first = running(ledger)
    last, middle, start = ledger.enqueue_many(
        [
            {"kind": "last", "depends_on": ["middle", "start"]},
            {"kind": "middle", "ref": "middle", "depends_on": ["start", first.id]},
            {"kind": "start", "ref": "start"},
        ]
    )
    assert [job.kind for job in (last, middle, start)] == ["last", "middle", "start"]
    assert last.id < middle.id < start.id
    assert last.depends_on == (middle.id, start.id)
    assert middle.waits_for == (first.id, start.id)
    assert start.waits_for == ()
    complete(ledger, start.id)
    ledger.complete(first.fence)
    complete(ledger, middle.id)
    assert types(ledger, last.id) == ["enqueued", "unblocked"]
    sound(ledger)


@pytest.mark.parametrize(
    "items",
    [
        [{"kind": "a", "ref": "a", "depends_on": ["a"]}],
        [{"kind": "a", "ref": "a", "depends_on": ["b"]}, {"kind": "b", "ref": "b", "depends_on": ["a"]}],
        [{"kind": "a", "depends_on": ["unknown"]}],
        [{"kind": "a", "ref": "a"}, {"kind": "b", "ref": "a"}],
        [{"kind": "a", "ref": 7}],
    ],
    ids=["itself", "a circle", "unknown", "two of a name", "no name"],
)
def test_invalid_refs_are_refused(ledger: Ledger, items: list[dict[str, Any]]) -> None:
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue_many(items)


def test_a_ref_to_an_existing_dedupe_key_means_the_existing_job(ledger: Ledger) -> None:
    held = queued(ledger, queue="default", dedupe_key="k")
    found, job = ledger.enqueue_many(
        [{"kind": "a", "ref": "a", "dedupe_key": "k"}, {"kind": "b", "dedupe_key": "l", "depends_on": ["a"]}]
    )
    assert (found.id, found.is_new, job.is_new) == (held.id, False, True)
    assert (job.depends_on, job.waits_for) == ((held.id,), (held.id,))
    sound(ledger)


def test_all_jobs_of_a_call_end_at_once_if_their_root_has_failed(ledger: Ledger) -> None:
    first = failed(ledger)
    made = ledger.enqueue_many(
        [
            {"kind": "c", "depends_on": ["b"], "on_dependency_failure": "cancel"},
            {"kind": "b", "ref": "b", "depends_on": [first.id], "on_dependency_failure": "cancel"},
        ]
    )
    assert [job.status for job in made] == ["cancelled", "cancelled"]
    sound(ledger)


def test_a_repeated_request_enqueues_nothing_twice(ledger: Ledger) -> None:
    first = running(ledger)
    items: list[dict[str, Any]] = [{"kind": "a", "ref": "a", "depends_on": [first.id]}, {"kind": "b", "depends_on": ["a"]}]
    made = ledger.enqueue_many(items, request_id="r")
    ledger.complete(first.fence)
    again = ledger.enqueue_many(items, request_id="r")
    assert [(job.id, job.rev, job.depends_on) for job in again] == [(job.id, job.rev, job.depends_on) for job in made]
    with refused("idempotency_conflict"):
        ledger.enqueue_many([{**items[0]}, {"kind": "b", "depends_on": []}], request_id="r")


def test_dependencies_are_sorted_and_a_replay_does_not_change_them(ledger: Ledger) -> None:
    first, second = failed(ledger), succeeded(ledger)
    job_id = after(ledger, second.id, first.id, on_dependency_failure="wait")
    assert ledger.get(job_id).depends_on == (first.id, second.id)
    again = ledger.replay(first.id)
    assert ledger.get(job_id).depends_on == (first.id, second.id)
    assert ledger.newest_replays(ledger.get(job_id).depends_on)[first.id].id == again.id


# Retention


@pytest.mark.parametrize("how", BAD_ENDS)
def test_a_job_with_waiting_dependents_is_not_pruned(ledger: Ledger, clock: ManualClock, how: str) -> None:
    first = BUILDERS[how](ledger)
    job_id = after(ledger, first.id, on_dependency_failure="wait")
    clock.advance(1)
    assert sum(ledger.prune(jobs_before=clock.now(), failed_before=clock.now()).values()) == 0
    ledger.cancel(job_id)
    clock.advance(1)
    assert sum(ledger.prune(jobs_before=clock.now(), failed_before=clock.now()).values()) == 2
    assert ledger.list() == []


def test_a_succeeded_dependency_may_be_pruned_while_others_are_live(ledger: Ledger, clock: ManualClock) -> None:
    first, second = succeeded(ledger), running(ledger, policy={"heartbeat_interval": "1h"})
    job_id = after(ledger, first.id, second.id)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now())["jobs"] == 1
    assert ledger.get(job_id).waits_for == (second.id,)
    ledger.complete(second.fence)
    assert types(ledger, job_id) == ["enqueued", "unblocked"]
