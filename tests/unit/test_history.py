"""The rules of the history: what an event changes, and who has a history."""

import pytest

from holdfast.core import limits
from holdfast.watch import tally as rules
from holdfast.watch.tally import Histogram, Move, Tally

HOUR = 3_600_000_000


def test_tallies_add_up():
    first = Tally(events={"enqueued": 1}, queued=-2, wait=Histogram(9, {1: 1}))
    second = Tally(events={"enqueued": 2, "failed": 1}, wait=Histogram(1, {1: 2, 3: 1}), run={"failed": Histogram(2, {0: 1})})
    assert rules.sum_tallies([first, second]) == Tally(
        events={"enqueued": 3, "failed": 1},
        queued=-2,
        wait=Histogram(10, {1: 3, 3: 1}),
        run={"failed": Histogram(2, {0: 1})},
    )
    assert first == Tally(events={"enqueued": 1}, queued=-2, wait=Histogram(9, {1: 1}))


def test_a_stall_for_a_transient_error_is_a_stall():
    tally = Tally(events={"stalled": 1, "retried": 2})
    assert (tally.count("stalled"), tally.count("retried"), tally.count("failed")) == (3, 2, 0)


def test_names_get_a_history_in_the_order_of_their_first_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "HISTORY_NAMES_MAX", 2)
    used = {("queue", "a"): 1, ("queue", "b"): 1, ("kind", "a"): 1, ("kind", "c"): 1}
    assert rules.with_own_history({("queue", "old")}, used) == {("queue", "old"), ("queue", "a"), ("kind", "a"), ("kind", "c")}
    now = 91 * 24 * HOUR
    pages = [(("all", ""), 0), (("queue", "a"), now // 60_000_000), (("queue", "b"), 0)]
    assert rules.last_hours(pages, now) == {("queue", "a"): now}


def test_the_queue_of_a_job_that_was_moved():
    moves = [Move(2, "b", "a"), Move(5, "c", "b")]
    assert [rules.queue_at(moves, rev, "c") for rev in range(1, 7)] == ["a", "b", "b", "b", "c", "c"]
    assert rules.queue_at([], 3, "a") == "a"


def test_slots_begin_at_full_minutes_and_hours():
    assert rules.slot_of(HOUR + 61_000_000, "minute") == HOUR + 60_000_000
    assert rules.slot_of(HOUR + 61_000_000, "hour") == HOUR


def test_a_chart_of_years_has_days():
    assert rules.chart_step_s(0, 1_000 * 24 * HOUR, 1_000 * 24 * HOUR) == 86_400
