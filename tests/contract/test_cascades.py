"""Cascades: the end of a job reaches all its dependents, in transactions of bounded size."""

from typing import Any

import pytest

from holdfast import Ledger
from holdfast.services.sweeper import SweepService
from tests.contract.builders import Made, claim, refused_without_trace, running, types
from tests.support.histories import problems

LONG = 1_050
"""More than Python's limit of recursion."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a transaction end this many jobs of a cascade."""
    monkeypatch.setattr("holdfast.ledger.dependencies.CASCADE_MAX", 5)
    return 5


def wide(ledger: Ledger, on: int, count: int, choice: str = "cancel") -> list[int]:
    items = [{"kind": "leaf", "queue": "leaves", "depends_on": [on], "on_dependency_failure": choice}] * count
    return [job.id for job in ledger.enqueue_many(items)]


def line(ledger: Ledger, on: int, count: int, choice: str = "cancel") -> list[int]:
    """A chain of jobs: each depends on the one before."""
    items: list[dict[str, Any]] = [
        {"kind": "step", "ref": f"s{n}", "depends_on": [f"s{n - 1}" if n else on], "on_dependency_failure": choice}
        for n in range(count)
    ]
    return [job.id for job in ledger.enqueue_many(items)]


def statuses(ledger: Ledger, ids: list[int]) -> list[str]:
    return [ledger.get(id_).status.value for id_ in ids]


def test_a_success_unblocks_all_jobs_without_other_dependencies(ledger: Ledger) -> None:
    first, second = running(ledger), running(ledger)
    ids = wide(ledger, first.id, 300)
    both = [job.id for job in ledger.enqueue_many([{"kind": "both", "depends_on": [first.id, second.id]}] * 20)]
    ledger.complete(first.fence, request_id="done")
    cause = ledger.events(first.id)[-1].id
    unblocked = ledger.events(types=["unblocked"], limit=1_000)
    assert [event.job_id for event in unblocked] == ids
    assert {(str(event.actor), event.request_id, event.cause) for event in unblocked} == {("system:ledger", "done", cause)}
    assert [ledger.get(id_).waits_for for id_ in both] == [(second.id,)] * 20
    ledger.complete(second.fence)
    assert ledger.list(waiting=True) == []
    assert problems(ledger) == []


def test_many_jobs_on_a_succeeded_job_do_not_wait(ledger: Ledger) -> None:
    first = running(ledger)
    ledger.complete(first.fence)
    ids = wide(ledger, first.id, 50)
    assert [types(ledger, id_) for id_ in ids] == [["enqueued", "unblocked"]] * 50
    assert problems(ledger) == []


@pytest.mark.parametrize(("choice", "status"), [("cancel", "cancelled"), ("dead_letter", "dead_lettered")])
def test_a_cascade_ends_a_long_chain_of_dependents(ledger: Ledger, choice: str, status: str) -> None:
    first = running(ledger)
    ids = line(ledger, first.id, LONG, choice)
    ledger.cancel(first.id, hard=True)
    assert ledger.counts()["default"] == {status: LONG}
    assert ledger.events(ids[-1])[-1].cause == ledger.events(ids[-2])[-1].id
    assert ledger.sweep() == {}
    assert problems(ledger) == []


def test_the_number_of_dependents_and_the_size_of_a_cascade_are_limited(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction handles a bounded part of a cascade; a sweep continues with the rest."""
    most = 500
    monkeypatch.setattr("holdfast.store.dependencies.DEPENDENTS_MAX", most)
    monkeypatch.setattr("holdfast.ledger.dependencies.CASCADE_MAX", most)
    first = running(ledger)
    ids = wide(ledger, first.id, most)
    [last] = wide(ledger, ids[-1], 1)
    with refused_without_trace(ledger, "limit_exceeded") as caught:
        wide(ledger, first.id, 1)
    assert (caught.value.context["job_id"], caught.value.context["limit"]) == (first.id, most)
    ledger.cancel(first.id, hard=True)
    assert ledger.counts()["leaves"] == {"cancelled": most, "queued": 1}
    assert ledger.get(last).waits_for == (ids[-1],)
    assert ledger.wants_sweeping("sweeper")
    assert ledger.sweep() == {"cancelled": 1}
    assert ledger.events(last)[-1].cause == ledger.events(ids[-1])[-1].id
    assert not ledger.wants_sweeping("sweeper")
    assert ledger.sweep() == {}
    assert problems(ledger) == []


def test_a_sweep_continues_a_cascade_in_bounded_steps(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    ids = line(ledger, first.id, 23)
    ledger.cancel(first.id, hard=True)
    assert statuses(ledger, ids) == ["cancelled"] * few + ["queued"] * (23 - few)
    sweeper = SweepService(ledger, "sweeper")
    assert [sweeper.tick(), sweeper.tick()] == [{}, {"cancelled": 23 - few}]
    assert statuses(ledger, ids) == ["cancelled"] * 23
    assert ledger.sweep() == {}
    assert problems(ledger) == []


def test_a_cascade_in_a_wide_graph_has_bounded_steps(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    middle = wide(ledger, first.id, 7)
    ids = [id_ for on in middle for id_ in wide(ledger, on, 3, "dead_letter")]
    ledger.cancel(first.id, hard=True)
    assert ledger.counts()["leaves"] == {"cancelled": few, "queued": 28 - few}
    assert ledger.sweep() == {"cancelled": 2, "dead_lettered": 21}
    assert statuses(ledger, ids) == ["dead_lettered"] * 21
    assert problems(ledger) == []


def test_the_cascade_of_a_new_job_with_a_failed_dependency_is_bounded(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    ledger.cancel(first.id, hard=True)
    ids = line(ledger, first.id, 9)
    assert statuses(ledger, ids) == ["cancelled"] * (1 + few) + ["queued"] * (8 - few)
    ledger.sweep()
    assert statuses(ledger, ids) == ["cancelled"] * 9
    assert problems(ledger) == []


def test_a_dependent_that_the_cascade_has_not_reached_follows_an_earlier_replay(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    ids = line(ledger, first.id, few + 1)
    ledger.cancel(first.id, hard=True)
    replay = ledger.replay(ids[-2])
    assert ledger.get(ids[-1]).waits_for == (replay.id,)
    assert ledger.sweep() == {}
    assert ledger.get(ids[-1]).status == "queued"
    assert not ledger.wants_sweeping("sweeper")
    assert problems(ledger) == []


def test_a_dependent_that_the_cascade_has_not_reached_may_be_cancelled(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    ids = line(ledger, first.id, few + 2)
    ledger.cancel(first.id, hard=True)
    ledger.cancel(ids[-2], reason="not needed")
    assert ledger.sweep() == {}
    assert [ledger.get(id_).cancel_reason for id_ in ids[-2:]] == ["not needed", f"dependency {ids[-2]} cancelled"]
    assert problems(ledger) == []


def test_a_new_dependent_of_an_unfinished_cascade_ends_at_once(ledger: Ledger, few: int) -> None:
    first = running(ledger)
    ids = line(ledger, first.id, few + 1)
    ledger.cancel(first.id, hard=True)
    assert statuses(ledger, wide(ledger, ids[few - 1], 2)) == ["cancelled"] * 2
    assert ledger.sweep() == {"cancelled": 1}
    assert problems(ledger) == []


def test_the_replay_of_a_dependency_unblocks_the_dependents_of_the_first(ledger: Ledger) -> None:
    first = running(ledger)
    ids = wide(ledger, first.id, 40, "wait")
    ledger.fail(first.fence, "no", retryable=False)
    again: Made = claim(ledger, ledger.replay(first.id).id)
    ledger.start(again.fence)
    ledger.complete(again.fence)
    assert [types(ledger, id_) for id_ in ids] == [["enqueued", "unblocked"]] * 40
    assert problems(ledger) == []
