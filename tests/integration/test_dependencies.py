"""Ends and enqueues at the same time: no dependent is missed, and none is unblocked twice."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
from holdfast import Fence, Ledger
from holdfast.errors import HoldfastError
from tests.integration.conftest import Opener
from tests.support.histories import problems
from tests.support.waiting import wait_until

ROUNDS = 15
MANY_ROUNDS = 80


def running(ledger: Ledger, count: int) -> list[Fence]:
    ledger.enqueue_many([{"kind": "work"}] * count)
    return [job.fence for job in ledger.claim("worker", limit=count, start=True)]


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all calls at once and return their answers."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [found.result() for found in [pool.submit(run, work) for work in works]]


def unblockings(ledger: Ledger, job_id: int) -> int:
    return sum(event.type == "unblocked" for event in ledger.events(job_id))


def test_dependencies_that_succeed_at_once_unblock_a_job_once(store_url: str, opened: Opener) -> None:
    ledgers = [opened(store_url) for _ in range(4)]
    for _ in range(ROUNDS):
        fences = running(ledgers[0], 4)
        jobs = [ledgers[0].enqueue("last", depends_on=[fence.job_id for fence in fences], queue="later") for _ in range(3)]
        together(
            *(lambda ledger=ledger, fence=fence: ledger.complete(fence) for ledger, fence in zip(ledgers, fences, strict=True))
        )
        assert [unblockings(ledgers[0], job.id) for job in jobs] == [1, 1, 1]
        assert ledgers[0].list(waiting=True) == []
    assert problems(ledgers[0]) == []


def test_a_job_enqueued_while_its_dependency_succeeds_is_unblocked(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        job, _ = together(
            lambda: one.enqueue("last", depends_on=[fence.job_id], queue="later"),  # noqa: B023 - run within the round
            lambda: other.complete_many([(fence, None)]),  # noqa: B023 - run within the round
        )
        assert unblockings(one, job.id) == 1
    assert one.list(waiting=True) == []
    assert problems(one) == []


def test_a_job_enqueued_while_its_dependency_is_cancelled_ends_with_it(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        job, _ = together(
            lambda: one.enqueue("last", depends_on=[fence.job_id], on_dependency_failure="cancel"),  # noqa: B023 - within
            lambda: other.cancel(fence.job_id, hard=True),  # noqa: B023 - run within the round
        )
        assert one.get(job.id).status == "cancelled"
    assert problems(one) == []


def test_batches_with_common_dependents_in_opposite_order_succeed(store_url: str, opened: Opener) -> None:
    """Two callers complete jobs with common dependents, in opposite order."""
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        fences = running(one, 40)
        ids = [fence.job_id for fence in fences]
        jobs = [one.enqueue("last", depends_on=[ids[n], ids[-1 - n]], queue="later") for n in range(20)]
        together(
            lambda: one.complete_many([(fence, None) for fence in fences[::2]]),  # noqa: B023 - run within the round
            lambda: other.complete_many([(fence, None) for fence in fences[1::2][::-1]]),  # noqa: B023 - run within the round
        )
        assert [unblockings(one, job.id) for job in jobs] == [1] * 20
    assert problems(one) == []


def test_ends_with_common_dependents_lock_them_in_one_order(pg_url: str, postgres_url: str) -> None:
    """Two sessions update the same dependents for two ends at once, repeatedly. They wait for each other and never deadlock."""
    before = deadlocks(postgres_url)
    with holdfast.open(pg_url) as one, holdfast.open(pg_url) as other:
        for _ in range(MANY_ROUNDS):
            first, second = running(one, 2)
            on = [first.job_id, second.job_id]
            made = one.enqueue_many(
                [{"kind": "last", "depends_on": on[:: 1 if n % 2 else -1], "queue": "later"} for n in range(12)]
                + [
                    {"kind": "first", "depends_on": on[:1], "queue": "later"},
                    {"kind": "second", "depends_on": on[1:], "queue": "later"},
                ]
            )
            together(lambda: one.complete(first), lambda: other.complete(second))  # noqa: B023 - run within the round
            assert {len(one.events(job.id)) for job in made} == {2}
        assert one.list(waiting=True) == []
        assert problems(one) == []
    assert deadlocks(postgres_url) == before


def deadlocks(server_url: str) -> int:
    """The number of deadlocks in the database, when its sessions have ended and reported them."""
    with psycopg.connect(server_url, autocommit=True) as connection:

        def count(question: str) -> int:
            [(found,)] = connection.execute(question.encode()).fetchall()
            return int(found)

        ledgers = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'"
        wait_until(lambda: count(ledgers) == 0, what="sessions end")
        return count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def test_a_dependent_that_is_cancelled_while_it_is_unblocked_still_ends(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        jobs = [one.enqueue("last", depends_on=[fence.job_id], queue="later") for _ in range(5)]
        together(
            lambda: one.complete(fence),  # noqa: B023 - run within the round
            *(lambda job=job: other.cancel(job.id) for job in jobs[1:4]),
        )
        assert [one.get(job.id).status for job in jobs] == ["queued", "cancelled", "cancelled", "cancelled", "queued"]
    assert one.list(waiting=True) == []
    assert problems(one) == []


def test_a_new_dependent_in_a_chain_that_ends_ends_with_it(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        line = one.enqueue_many(
            {
                "kind": "step",
                "ref": f"s{n}",
                "depends_on": [f"s{n - 1}" if n else fence.job_id],
                "on_dependency_failure": "cancel",
            }
            for n in range(20)
        )
        *made, _ = together(
            *(
                lambda on=on: other.enqueue("late", depends_on=[on.id], on_dependency_failure="cancel")
                for on in (line[3], line[10], line[19])
            ),
            lambda: one.cancel(fence.job_id, hard=True),  # noqa: B023 - run within the round
        )
        one.sweep()  # a dependent of a job that was locked at that moment is left to it
        assert {one.get(job.id).status.value for job in [*line, *made]} == {"cancelled"}
    assert problems(one) == []


def test_two_sweeps_that_continue_one_cascade_end_each_dependent_once(
    store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ledger.dependencies.CASCADE_MAX", 3)
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        items = [{"kind": "leaf", "depends_on": [fence.job_id], "on_dependency_failure": "cancel"}] * 20
        made = one.enqueue_many(items)
        one.cancel(fence.job_id, hard=True)
        counts = together(one.sweep, other.sweep)
        assert sum(found.get("cancelled", 0) for found in counts) == 17
        assert {one.get(job.id).status.value for job in made} == {"cancelled"}
    assert problems(one) == []


def test_two_cascades_that_meet_end_the_common_dependent_once(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        first, second = running(one, 2)
        made = one.enqueue_many(
            [
                {"kind": "c", "depends_on": ["a", "b"], "on_dependency_failure": "cancel"},
                {"kind": "a", "ref": "a", "depends_on": [first.job_id], "on_dependency_failure": "cancel"},
                {"kind": "b", "ref": "b", "depends_on": [second.job_id], "on_dependency_failure": "cancel"},
            ]
        )

        def cancel(ledger: Ledger, job_id: int) -> Any:
            try:
                return ledger.cancel(job_id, hard=True)
            except HoldfastError as refusal:
                return refusal

        together(
            lambda: cancel(one, first.job_id),  # noqa: B023 - run within the round
            lambda: cancel(other, second.job_id),  # noqa: B023 - run within the round
            lambda: cancel(other, made[0].id),  # noqa: B023 - run within the round
        )
        assert [one.get(job.id).status for job in made] == ["cancelled"] * 3
    assert problems(one) == []


def test_a_dependent_enqueued_during_a_replay_follows_it(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    for _ in range(ROUNDS):
        [fence] = running(one, 1)
        one.fail(fence, "no", retryable=False)
        job, replay = together(
            lambda: one.enqueue(
                "last",
                depends_on=[fence.job_id],  # noqa: B023 - run within the round
                queue="later",
                on_dependency_failure="wait",
            ),
            lambda: other.replay(fence.job_id),  # noqa: B023 - run within the round
        )
        assert one.get(job.id).waits_for == (replay.id,)
        [again] = one.claim("worker", start=True)
        one.complete(again.fence)
        assert unblockings(one, job.id) == 1
    assert problems(one) == []


def test_dependencies_work_in_the_callers_transaction(real: Ledger, store_url: str, postgres_url: str) -> None:
    """Jobs of the transaction can depend on each other. A sweep handles a dependency that ended before the commit."""
    [fence] = running(real, 1)
    connection: Any
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(postgres_url)
    first = real.enqueue("first", queue="later", connection=connection)
    both = real.enqueue("both", queue="later", depends_on=[first.id, fence.job_id], connection=connection)
    graph = real.enqueue_many(
        [
            {"kind": "b", "depends_on": ["a"], "queue": "later"},
            {"kind": "a", "ref": "a", "queue": "later", "depends_on": [both.id]},
        ],
        connection=connection,
    )
    with ThreadPoolExecutor(1) as pool:
        completed = pool.submit(real.complete, fence)
        connection.execute("COMMIT")
        completed.result()
    connection.close()
    real.sweep()
    assert real.get(both.id).waits_for == (first.id,)
    assert real.get(graph[0].id).waits_for == (graph[1].id,)
    for expected in (first, both, graph[1], graph[0]):
        [job] = real.claim("worker", ["later"], start=True, limit=10)
        assert job.id == expected.id
        real.complete(job.fence)
    assert problems(real) == []


def test_a_rolled_back_dependent_leaves_nothing(real: Ledger, store_url: str, postgres_url: str) -> None:
    [fence] = running(real, 1)
    connection: Any
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(postgres_url)
    real.enqueue("both", depends_on=[fence.job_id], connection=connection)
    connection.execute("ROLLBACK")
    connection.close()
    assert real.dependents(fence.job_id) == []
    real.complete(fence)
    assert problems(real) == []
