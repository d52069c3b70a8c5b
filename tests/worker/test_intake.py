"""What a worker claims, and how much of it."""

import random
from collections import Counter
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.worker.intake import AHEAD_MAX, Order, Window


def test_weights_say_how_often_a_queue_comes_first() -> None:
    order = Order({"a": 6, "b": 3, "c": 1}, random.Random(7).random)
    first = Counter(order.next()[0] for _ in range(10_000))
    assert [round(first[name] / 10_000, 1) for name in "abc"] == [0.6, 0.3, 0.1]


def test_every_queue_is_in_every_draw() -> None:
    order = Order({"a": 1_000, "b": 1}, random.Random(7).random)
    assert all(sorted(order.next()) == ["a", "b"] for _ in range(100))


def test_a_list_is_kept_in_its_order() -> None:
    assert Order(["z", "a"]).next() == ["z", "a"]


def test_the_window_opens_while_jobs_begin_at_once() -> None:
    window = Window()
    for _ in range(20):
        window.saw(asked=10, got=10, waited=0.001)
    assert window.size == AHEAD_MAX


def test_the_window_stays_shut_where_jobs_wait() -> None:
    window = Window()
    window.saw(asked=10, got=10, waited=1.0)
    assert window.size == 0


def test_the_window_closes_when_jobs_begin_to_wait() -> None:
    window = Window()
    for _ in range(20):
        window.saw(asked=10, got=10, waited=0.001)
    for _ in range(10):
        window.saw(asked=10, got=10, waited=0.1)
    assert window.size == 0


def test_an_emptied_queue_does_not_open_the_window() -> None:
    window = Window()
    window.saw(asked=10, got=3, waited=0.001)
    assert window.size == 0


OPTIONS: dict[str, Any] = {
    "plain": {},
    "limited": {"concurrency": 1},
    "checked": {"checks": lambda job: True},
    "in processes": {"isolation": "process"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_undo_jobs_are_never_claimed_alone(app: App, options: Any) -> None:
    """Where much is ready, a claim for a kind that hardly ever is looks at all of it."""
    app.handler(**options)(work)
    with app.worker() as worker:
        worker.start()
        assert [set(group.kinds) for group in worker._intake._groups] == [{"work", "holdfast.undo"}]


def work(job: Context) -> None: ...
