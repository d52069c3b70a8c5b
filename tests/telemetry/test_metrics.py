"""Metrics by themselves: bounds, quantiles, forks."""

import math
import os
import threading

import pytest

from holdfast.errors import ValidationError
from holdfast.watch import families
from holdfast.watch.process import NAMES_MAX, OUTCOMES_MAX, Metrics, Quantiles


def test_runs_are_counted_by_kind_and_outcome() -> None:
    metrics = Metrics()
    metrics.ran("a", "succeeded", 0.5)
    for run in (("a", "succeeded", 1.5), ("a", "failed", 2.0), ("b", "succeeded", 0.0)):
        metrics.ran(*run)

    runs = metrics.read().timings[families.RUN]
    assert {labels: (timing.count, timing.sum_us) for labels, timing in runs.items()} == {
        ("a", "succeeded"): (2, 2_000_000),
        ("a", "failed"): (1, 2_000_000),
        ("b", "succeeded"): (1, 0),
    }
    assert metrics.value(families.COMPLETED, kind="a") == 2
    assert metrics.value(families.COMPLETED, kind="b") == 1


def test_an_invalid_duration_is_refused_and_a_negative_one_is_zero() -> None:
    metrics = Metrics()
    for seconds in (math.nan, math.inf):
        with pytest.raises(ValidationError):
            metrics.ran("a", "succeeded", seconds)
    assert metrics.read().timings[families.RUN] == {}
    metrics.ran("a", "succeeded", -1.0)
    assert metrics.read().timings[families.RUN]["a", "succeeded"].sum_us == 0


def test_names_are_bounded() -> None:
    metrics = Metrics()
    for number in range(NAMES_MAX + 50):
        metrics.ran(f"kind-{number}", "succeeded", 1.0)
    metrics.ran("kind-0", "succeeded", 1.0)

    series = metrics.read().counters[families.COMPLETED]
    assert len(series) == NAMES_MAX + 1
    assert series["other",] == 50
    assert series["kind-0",] == 2
    assert metrics.queue_label("q") == "q", "queues have a bound of their own"


def test_outcomes_are_bounded() -> None:
    metrics = Metrics()
    for number in range(OUTCOMES_MAX + 3):
        metrics.ran("a", f"outcome-{number}", 1.0)
    assert metrics.read().timings[families.RUN]["a", "other"].count == 3


def test_an_unknown_counter_is_refused() -> None:
    with pytest.raises(ValidationError):
        Metrics().value("holdfast_claims_total", queue="q")
    with pytest.raises(ValidationError):
        Metrics().value("claims")


def test_quantiles_are_within_5_percent() -> None:
    metrics = Metrics()
    assert metrics.quantiles("a") == Quantiles(None, None, None, None)
    metrics.ran_many("a", "succeeded", [0.7] * 50)
    metrics.ran_many("a", "failed", [1.7] * 50)

    found = metrics.quantiles("a")
    assert (found.wait_p50, found.wait_p95) == (None, None)
    assert found.run_p50 == pytest.approx(0.7, rel=0.05)
    assert found.run_p95 == pytest.approx(1.7, rel=0.05)
    assert metrics.quantiles("b") == Quantiles(None, None, None, None)


def test_a_snapshot_does_not_change() -> None:
    metrics = Metrics()
    metrics.ran("a", "succeeded", 1.0)
    before = metrics.read()
    metrics.ran("a", "succeeded", 1.0)
    assert before.counters[families.COMPLETED]["a",] == 1
    assert before.timings[families.RUN]["a", "succeeded"].count == 1


def test_a_child_of_a_fork_can_count_though_the_lock_was_held() -> None:
    metrics = Metrics()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with metrics._lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if not child:
        metrics.ran("a", "succeeded", 1.0)
        os._exit(0 if metrics.value(families.COMPLETED, kind="a") == 1 else 1)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        holder.join()
