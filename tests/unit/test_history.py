"""The rules of the history: what an event changes, and who has a history."""

import pytest

from holdfast.core import limits
from holdfast.watch import tally as rules
from holdfast.watch.tally import CountedEvents, Histogram, Move, Tally

HOUR = 3_600_000_000


def counted(type_: str, from_status: str | None, to_status: str, **fields: object) -> CountedEvents:
    values = {"starts": False, "wait": None, "run": None, "wait_us": 0, "run_us": 0, "n": 3, **fields}
    return CountedEvents(0, "q", "k", type_, from_status, to_status, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "changes", "tally"),
    [
        (counted("enqueued", None, "queued"), {"queued": 3}, Tally(events={"enqueued": 3}, queued=3)),
        (
            counted("claimed", "queued", "claimed", wait=4, wait_us=11),
            {"queued": -3, "claimed": 3},
            Tally(events={"claimed": 3}, queued=-3, wait=Histogram(11, {4: 3})),
        ),
        (
            counted("claimed", "queued", "claimed", starts=True),
            {"queued": -3, "running": 3},
            Tally(events={"claimed": 3, "started": 3}, queued=-3),
        ),
        (
            counted("succeeded", "running", "succeeded", run=2, run_us=6),
            {"running": -3, "succeeded": 3},
            Tally(events={"succeeded": 3}, run={"succeeded": Histogram(6, {2: 3})}),
        ),
        (counted("requeued", "stalled", "queued"), {"stalled": -3, "queued": 3}, Tally(events={"requeued": 3}, queued=3)),
        (counted("discarded", "failed", "failed"), {}, Tally(events={"discarded": 3})),
    ],
    ids=repr,
)
def test_events_change_totals_and_history(found: CountedEvents, changes: dict[str, int], tally: Tally):
    assert rules.changes_of(found) == changes
    assert rules.tally_of(found) == tally


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


def test_names_beyond_the_limit_have_no_history_of_their_own():
    own = {f"queue-{number}" for number in range(limits.HISTORY_NAMES_MAX)}
    assert rules.is_other("late", own)
    assert not rules.is_other("queue-0", own)
    assert not rules.is_other("late", own - {"queue-0"})


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
