"""What a worker claims, and how much of it."""

import random
from collections import Counter

import pytest

from holdfast import App
from holdfast.worker.intake import AHEAD_MAX, Order, Window
from tests.worker.conftest import Starter, ended


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


def test_a_kind_with_a_limit_goes_on_when_its_job_is_settled(app: App, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the end of the one job can tell the worker of its room: it would not look for itself in time."""
    monkeypatch.setattr("holdfast.worker.intake.STALE_SECONDS", 3_600.0)

    @app.handler(concurrency=1)
    def one_by_one(n: int) -> int:
        return n

    jobs = app.enqueue_many(one_by_one, [{"n": n} for n in range(20)])
    start()
    assert [ended(app, job).result for job in jobs] == list(range(20))
