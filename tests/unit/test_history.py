"""The rules of the history: buckets, percentiles, and what an event changes."""

import math
import random

import pytest

from holdfast.core import history as rules
from holdfast.core import limits
from holdfast.core.history import CountedEvents, Move, Tally

HOUR = 3_600_000_000


def test_there_are_28_buckets_from_a_millisecond_to_a_week():
    assert len(rules.BOUNDS_US) == rules.BUCKETS == 28
    assert rules.BOUNDS_US[0] == 1_000
    assert math.isclose(rules.BOUNDS_US[-1], 7 * 86_400_000_000)


@pytest.mark.parametrize(
    ("us", "bucket"), [(-5, 0), (0, 0), (1, 0), (1_000, 0), (1_001, 1), (2_114, 1), (2_116, 2), (10**18, 27)]
)
def test_a_time_is_in_the_first_bucket_that_is_not_shorter(us: int, bucket: int):
    assert rules.bucket_of(us) == bucket


def test_no_time_has_no_percentile():
    assert rules.percentile_us({}, 0.5) is None


def test_a_percentile_is_within_the_stated_factor():
    chance = random.Random(7)
    for _ in range(200):
        times = sorted(chance.lognormvariate(14, 3) for _ in range(chance.randrange(1, 50)))
        buckets: dict[int, int] = {}
        for us in times:
            buckets[rules.bucket_of(us)] = buckets.get(rules.bucket_of(us), 0) + 1
        for share in (0.5, 0.95):
            true = times[max(0, math.ceil(share * len(times)) - 1)]
            found = rules.percentile_us(buckets, share)
            assert found is not None
            if 1_000 < true < rules.LONGEST_US:
                assert true / rules.RATIO <= found * 1.000001
                assert found <= true * rules.RATIO * 1.000001


def test_the_first_bucket_begins_at_zero():
    assert rules.percentile_us({0: 4}, 0.5) == 500


def counted(type_: str, from_status: str | None, to_status: str, **fields: object) -> CountedEvents:
    values = {"starts": False, "wait": None, "run": None, "n": 3, **fields}
    return CountedEvents(0, "q", "k", type_, from_status, to_status, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "changes", "tally"),
    [
        (counted("enqueued", None, "queued"), {"queued": 3}, Tally(enqueued=3, queued=3)),
        (counted("claimed", "queued", "claimed", wait=4), {"queued": -3, "claimed": 3}, Tally(queued=-3, wait={4: 3})),
        (counted("claimed", "queued", "claimed", starts=True), {"queued": -3, "running": 3}, Tally(queued=-3, started=3)),
        (counted("succeeded", "running", "succeeded", run=2), {"running": -3, "succeeded": 3}, Tally(succeeded=3, run={2: 3})),
        (counted("requeued", "stalled", "queued"), {"stalled": -3, "queued": 3}, Tally(requeued=3, queued=3)),
        (counted("discarded", "failed", "failed"), {}, Tally()),
    ],
    ids=repr,
)
def test_events_change_totals_and_history(found: CountedEvents, changes: dict[str, int], tally: Tally):
    assert rules.changes_of(found) == changes
    assert rules.tally_of(found) == tally


def test_tallies_add_up():
    first, second = Tally(enqueued=1, queued=-2, wait={1: 1}), Tally(enqueued=2, failed=1, wait={1: 2, 3: 1}, run={0: 1})
    assert rules.sum_tallies([first, second]) == Tally(enqueued=3, failed=1, queued=-2, wait={1: 3, 3: 1}, run={0: 1})
    assert first == Tally(enqueued=1, queued=-2, wait={1: 1})


def test_names_beyond_the_limit_have_no_history_of_their_own():
    own = {f"queue-{number}" for number in range(limits.HISTORY_NAMES_MAX)}
    assert rules.is_other("late", own)
    assert not rules.is_other("queue-0", own)
    assert not rules.is_other("late", own - {"queue-0"})


def test_the_queue_of_a_job_that_was_moved():
    moves = [Move(2, "b", "a"), Move(5, "c", "b")]
    assert [rules.queue_at(moves, rev, "c") for rev in range(1, 7)] == ["a", "b", "b", "b", "c", "c"]
    assert rules.queue_at([], 3, "a") == "a"


@pytest.mark.parametrize(
    ("hours", "ago", "step_s"),
    [(1, 0, 60), (24, 0, 300), (24, 60, 3_600), (24 * 400, 0, 86_400), (24 * 1_000, 0, 86_400)],
)
def test_the_step_of_a_chart(hours: int, ago: int, step_s: int):
    now = 5_000_000 * HOUR
    until = now - ago * HOUR
    assert rules.chart_step_s(until - hours * HOUR, until, now) == step_s


def test_slots_begin_at_full_minutes_and_hours():
    assert rules.slot_of(HOUR + 61_000_000, "minute") == HOUR + 60_000_000
    assert rules.slot_of(HOUR + 61_000_000, "hour") == HOUR
