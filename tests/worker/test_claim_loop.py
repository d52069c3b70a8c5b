"""Which jobs a worker claims, and how many."""

import random
import threading
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.worker.claim_loop import QueueOrder
from holdfast.worker.thread_pool import PREFETCH_MAX, ThreadPool
from tests.worker.conftest import Starter, ended


def test_weights_set_how_often_a_queue_comes_first() -> None:
    order = QueueOrder({"a": 6, "b": 3, "c": 1}, random.Random(7).random)
    first = Counter(order.next()[0] for _ in range(10_000))
    assert [round(first[name] / 10_000, 1) for name in "abc"] == [0.6, 0.3, 0.1]


def test_every_queue_is_in_every_draw() -> None:
    order = QueueOrder({"a": 1_000, "b": 1}, random.Random(7).random)
    assert all(sorted(order.next()) == ["a", "b"] for _ in range(100))


def test_a_list_is_kept_in_its_order() -> None:
    assert QueueOrder(["z", "a"]).next() == ["z", "a"]


class PoolRuntime:
    """The parts of the runtime that a thread pool needs, with a clock that its attempts move."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def pool_that_ran(*seconds: float) -> ThreadPool:
    """A pool of ten threads after attempts of these durations."""
    runtime = PoolRuntime()
    left = iter(seconds)

    def run(context: Any) -> None:
        runtime.now += next(left)

    pool = ThreadPool(10, runtime, run, lambda: None, "test")  # type: ignore[arg-type]
    pool._waiting.extend(SimpleNamespace(abandoned=False) for _ in seconds)  # type: ignore[misc]
    pool._active = 1
    pool._run_waiting()
    return pool


def test_nothing_is_prefetched_before_durations_are_known() -> None:
    assert pool_that_ran().prefetch() == 0


def test_nothing_is_prefetched_after_waiting_attempts_were_released() -> None:
    pool = pool_that_ran(*[0.0001] * 100)
    assert pool.prefetch() > 0
    pool._waiting.append(SimpleNamespace(abandoned=False))  # type: ignore[arg-type]
    assert len(pool.take_waiting()) == 1
    assert pool.prefetch() == 0


def test_quick_attempts_are_prefetched() -> None:
    assert pool_that_ran(*[0.000_01] * 100).prefetch() == PREFETCH_MAX


def test_slow_attempts_are_not_prefetched() -> None:
    assert pool_that_ran(*[2.0] * 100).prefetch() == 0


def test_the_prefetch_depends_on_the_duration() -> None:
    assert 40 < pool_that_ran(*[0.01] * 100).prefetch() < 60


def test_one_slow_attempt_is_noticed() -> None:
    assert pool_that_ran(*[0.000_01] * 100, 5.0).prefetch() == 0


def test_a_kind_with_a_limit_continues_when_its_job_has_ended(app: App, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the end of the one job wakes the worker: its next poll is too late."""
    monkeypatch.setattr("holdfast.worker.claim_loop.STALE_SECONDS", 3_600.0)

    @app.handler(concurrency=1)
    def one_by_one(n: int) -> int:
        return n

    jobs = app.enqueue_many(one_by_one, [{"n": n} for n in range(20)])
    start()
    assert [ended(app, job).result for job in jobs] == list(range(20))


def test_a_kind_with_a_limit_continues_beside_a_waiting_one(app: App, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits for a notification of one kind notices that it has capacity for another."""
    monkeypatch.setattr("holdfast.worker.claim_loop.WAIT_SLICE_SECONDS", 3_600.0)

    @app.handler(concurrency=1)
    def one_by_one(n: int) -> int:
        return n

    app.handler()(work)
    jobs = app.enqueue_many(one_by_one, [{"n": n} for n in range(20)])
    start()
    assert [ended(app, job).result for job in jobs] == list(range(20))

    monkeypatch.undo()  # one more notification, so that it waits again and notices its stop
    ended(app, app.enqueue(work))


OPTIONS: dict[str, Any] = {
    "plain": {},
    "limited": {"concurrency": 1},
    "checked": {"checks": lambda job: True},
    "in processes": {"isolation": "process"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_undo_jobs_are_never_the_only_kind_of_a_claim(app: App, options: Any) -> None:
    """If many jobs are ready, a claim for a rare kind alone would read all of them."""
    app.handler(**options)(work)
    with app.worker() as worker:
        worker.start()
        assert [set(group.kinds) for group in worker._claim_loop._groups] == [{"work", "holdfast.undo"}]


def work(job: Context) -> None: ...


def test_an_attempt_counts_as_held_from_the_queue_to_its_end() -> None:
    """A worker that stops waits until nothing is held. An attempt that is just taken from the queue must count."""
    seen: list[int] = []
    looking = threading.Thread(target=lambda: seen.append(pool.held()))

    class Line(deque[Any]):
        def popleft(self) -> Any:
            taken = super().popleft()
            looking.start()
            looking.join(0.1)
            return taken

    pool = ThreadPool(1, PoolRuntime(), lambda _: looking.join(), lambda: None, "test")  # type: ignore[arg-type]
    pool._waiting = Line([SimpleNamespace(abandoned=False)])
    pool._active = 1
    pool._run_waiting()
    assert seen == [1]
