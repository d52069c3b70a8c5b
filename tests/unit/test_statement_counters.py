"""Counters of signed statements: rising for each worker, and not affected by a counter far ahead."""

from holdfast.core.limits import INTEGER_MAX, SKEW_US_MAX
from holdfast.ledger.keyring import StatementCounters
from tests.unit.histories import T0


def test_a_count_is_the_time_or_the_next_one():
    counts = StatementCounters()
    assert [counts.next("w-1", T0, 0), counts.next("w-1", T0, 0), counts.next("w-1", T0 + 9, 0)] == [T0, T0 + 1, T0 + 9]
    assert counts.next("w-1", T0, T0 + 20) == T0 + 21
    assert counts.next("w-1", T0, 0) == T0 + 22


def test_each_worker_has_its_own_counter():
    counts = StatementCounters()
    counts.next("w-1", T0, T0 + 20)
    assert counts.next("w-2", T0, 0) == T0


def test_a_counter_far_ahead_affects_only_its_job():
    counts = StatementCounters()
    assert counts.next("w-1", T0, INTEGER_MAX - 1) == INTEGER_MAX
    assert counts.next("w-1", T0, 0) == T0


def test_a_counter_starts_again_after_a_step_back():
    counts = StatementCounters()
    counts.next("w-1", T0, 0)
    back = T0 - SKEW_US_MAX
    assert counts.next("w-1", back, 0) == back
    assert counts.next("w-1", back, T0) == T0 + 1
