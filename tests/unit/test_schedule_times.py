"""Planned times of schedules: regular ones, cron expressions, and the hours that time zones skip or repeat."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.core import limits
from holdfast.core.schedule import FiringPlan, Missed, Position, ScheduleBody, UnmadeTimes, begin, fire_at, plan_firings
from holdfast.errors import ValidationError
from holdfast.ledger.firing_times import ScheduleTimes, read_cron, zone
from holdfast.ledger.public import to_datetime, to_micros

SECOND = 1_000_000


def body(**fields: object) -> ScheduleBody:
    return ScheduleBody(msgspec.Raw(b"{}"), **fields)  # type: ignore[arg-type]


def times(start: str, count: int, **fields: object) -> list[str]:
    """Return the next planned times after a time, in UTC."""
    found, at = [], to_micros(datetime.fromisoformat(start))
    planned = ScheduleTimes(body(**fields))
    for _ in range(count):
        following = planned.after(at)
        if following is None:
            break
        found.append(to_datetime(following).isoformat().replace("+00:00", "Z"))
        at = following
    return found


def test_regular_times_do_not_depend_on_when_the_schedule_was_made():
    assert times("2026-11-17T10:07:12Z", 3, every_us=900 * SECOND) == [
        "2026-11-17T10:15:00Z",
        "2026-11-17T10:30:00Z",
        "2026-11-17T10:45:00Z",
    ]


def test_regular_times_are_counted_from_the_start():
    start = to_micros(datetime(2026, 11, 17, 10, 1, tzinfo=UTC))
    assert times("2026-11-17T09:00:00Z", 2, every_us=3_600 * SECOND, start_at=start) == [
        "2026-11-17T10:01:00Z",
        "2026-11-17T11:01:00Z",
    ]


def test_there_is_no_time_after_the_end():
    end = to_micros(datetime(2026, 11, 17, 10, 30, tzinfo=UTC))
    assert times("2026-11-17T10:07:12Z", 5, every_us=900 * SECOND, end_at=end) == ["2026-11-17T10:15:00Z", "2026-11-17T10:30:00Z"]
    assert ScheduleTimes(body(every_us=900 * SECOND, end_at=end)).newest(end + 10**12) == end


@pytest.mark.parametrize(
    ("tz", "start", "expected"),
    [
        # The hour from 2 to 3 is skipped: 2:30 runs right after the gap.
        ("Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("America/New_York", "2026-03-07T12:00:00Z", ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
        ("Australia/Sydney", "2026-10-03T00:00:00Z", ["2026-10-03T16:00:00Z", "2026-10-04T15:30:00Z"]),
        ("America/Santiago", "2026-09-05T12:00:00Z", ["2026-09-06T05:30:00Z", "2026-09-07T05:30:00Z"]),
        # Half an hour from 2:00 to 2:30 is skipped.
        ("Australia/Lord_Howe", "2026-10-03T00:00:00Z", ["2026-10-03T15:30:00Z", "2026-10-04T15:30:00Z"]),
        # The hour from 2 to 3 comes twice: 2:30 runs once, the first time.
        ("Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("America/New_York", "2026-11-01T02:00:00Z", ["2026-11-01T07:30:00Z", "2026-11-02T07:30:00Z"]),
        ("Australia/Sydney", "2026-04-04T00:00:00Z", ["2026-04-04T15:30:00Z", "2026-04-05T16:30:00Z"]),
        ("America/Santiago", "2026-04-04T12:00:00Z", ["2026-04-05T06:30:00Z", "2026-04-06T06:30:00Z"]),
        ("Australia/Lord_Howe", "2026-04-04T00:00:00Z", ["2026-04-04T16:00:00Z", "2026-04-05T16:00:00Z"]),
    ],
)
def test_a_fixed_time_around_a_change_of_the_clock(tz: str, start: str, expected: list[str]):
    assert times(start, 2, cron="30 2 * * *", tz=tz) == expected


@pytest.mark.parametrize(
    ("tz", "start", "expected"),
    [
        ("Europe/Berlin", "2026-03-29T00:10:00Z", ["00:15", "00:45", "01:15", "01:45"]),
        ("Europe/Berlin", "2026-10-25T00:10:00Z", ["00:15", "00:45", "01:15", "01:45"]),
        ("America/New_York", "2026-11-01T05:10:00Z", ["05:15", "05:45", "06:15", "06:45"]),
        ("Australia/Lord_Howe", "2026-04-04T14:40:00Z", ["14:45", "15:15", "15:45", "16:15"]),
    ],
)
def test_times_of_every_hour_follow_each_other_evenly(tz: str, start: str, expected: list[str]):
    assert [text[11:16] for text in times(start, 4, cron="15,45 * * * *", tz=tz)] == expected


@pytest.mark.parametrize(
    "tz", ["Europe/Berlin", "America/New_York", "Australia/Sydney", "America/Santiago", "Australia/Lord_Howe"]
)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *", "*/20 * * * *", "0,30 1,2,3 * * *", "0 */2 * * 1-5"])
def test_times_increase_from_any_moment_of_a_year(tz: str, cron: str):
    """Every moment has a later planned time, which is also the first one after any moment in between."""
    planned = ScheduleTimes(body(cron=cron, tz=tz))
    at = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
    while at < to_micros(datetime(2027, 1, 1, tzinfo=UTC)):
        following = planned.after(at)
        assert following is not None and following > at
        assert planned.after((at + following) // 2) == following
        assert planned.newest(following) == following
        at = max(following, at + 17 * 3_600 * SECOND)


@pytest.mark.parametrize(
    ("cron", "part"),
    [
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 32 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 9", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("x * * * *", "minute"),
        ("0 0 30 2 *", "day-of-month"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_part_that_is_wrong(cron: str, part: str):
    with pytest.raises(ValidationError, match=part) as refused:
        read_cron(cron)
    assert refused.value.context["part"] == part


@pytest.mark.parametrize("cron", ["", "* * *", "* * * * * *", "@reboot", "0 0 31 4 MON#5L"])
def test_what_is_no_expression_of_five_fields_is_refused(cron: str):
    with pytest.raises(ValidationError):
        read_cron(cron)


def test_names_for_common_expressions():
    assert read_cron("@daily") == "0 0 * * *"
    assert read_cron(" 0  3 * * mon ") == "0 3 * * mon"


@pytest.mark.parametrize("name", ["Nowhere/Land", "", "../../etc/passwd", "/etc/localtime", "a\0b"])
def test_an_unknown_time_zone_is_refused(name: str):
    with pytest.raises(ValidationError, match="no time zone"):
        zone(name)


NEXT = to_micros(datetime(2026, 11, 17, 10, 0, tzinfo=UTC))
MINUTE = 60 * SECOND


def plan(now: int, **fields: object) -> FiringPlan:
    chosen = body(every_us=MINUTE, **fields)
    return plan_firings("s", chosen, ScheduleTimes(chosen), NEXT, now)


def test_a_firing_in_time_is_made():
    for missed in Missed:
        assert plan(NEXT + SECOND, missed=missed) == FiringPlan((NEXT,), 0, NEXT + MINUTE)
        assert plan(NEXT - 1, missed=missed) == FiringPlan((), 0, NEXT)


def test_missed_firings():
    late = NEXT + 3 * MINUTE + SECOND
    assert plan(late, missed=Missed.ONE) == FiringPlan((NEXT + 3 * MINUTE,), 3, NEXT + 4 * MINUTE, NEXT + 3 * MINUTE)
    assert plan(late, missed=Missed.SKIP) == FiringPlan((NEXT + 3 * MINUTE,), 3, NEXT + 4 * MINUTE, NEXT + 3 * MINUTE)
    assert plan(late, missed=Missed.ALL) == FiringPlan(tuple(NEXT + n * MINUTE for n in range(4)), 0, NEXT + 4 * MINUTE)


def test_a_firing_that_is_more_than_a_minute_late_was_missed():
    hourly = body(every_us=60 * MINUTE, missed=Missed.SKIP)
    on_time = plan_firings("s", hourly, ScheduleTimes(hourly), NEXT, NEXT + MINUTE)
    assert on_time.times == (NEXT,)
    late = plan_firings("s", hourly, ScheduleTimes(hourly), NEXT, NEXT + MINUTE + 1)
    assert late == FiringPlan((), 1, NEXT + 60 * MINUTE)


def test_after_a_long_outage_all_missed_firings_are_made_in_bounded_steps():
    now = NEXT + 10_000 * MINUTE
    first = plan(now, missed=Missed.ALL)
    assert len(first.times) == limits.FIRINGS_MAX
    assert first.next_at == NEXT + limits.FIRINGS_MAX * MINUTE


@pytest.mark.parametrize("fields", [{"every_us": SECOND}, {"cron": "* * * * *"}, {"cron": "30 2 * * *", "tz": "Europe/Berlin"}])
def test_after_ten_years_one_job_is_made_for_the_newest_time(fields: dict[str, object]):
    chosen = body(missed=Missed.ONE, **fields)
    planned = ScheduleTimes(chosen)
    first = planned.after(NEXT)
    assert first is not None
    now = NEXT + timedelta(days=3_652) // timedelta(microseconds=1)
    made = plan_firings("s", chosen, planned, first, now)
    assert made.times == (planned.newest(now),)
    assert made.next_at is not None and made.next_at > now
    assert made.skipped >= limits.MISSED_FIRINGS_COUNTED_MAX


def test_jitter_delays_each_firing_by_its_own_part():
    due = [fire_at("s", MINUTE, NEXT + n * MINUTE) - NEXT - n * MINUTE for n in range(200)]
    assert all(0 <= part < MINUTE for part in due)
    assert len(set(due)) > 190
    assert due == [fire_at("s", MINUTE, NEXT + n * MINUTE) - NEXT - n * MINUTE for n in range(200)]
    assert fire_at("s", MINUTE, NEXT) != fire_at("t", MINUTE, NEXT)


def test_two_schedules_with_the_same_times():
    hourly = body(cron="0 * * * *")
    assert hourly.has_times_of(body(cron="0 * * * *", missed=Missed.ALL))
    for other in ({"cron": "1 * * * *"}, {"every_us": MINUTE}, {"cron": "0 * * * *", "jitter_us": 1}):
        assert not hourly.has_times_of(body(**other))


def test_there_are_no_times_after_the_end_of_the_calendar():
    end = to_micros(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    for tz in ("UTC", "Asia/Tokyo", "America/New_York"):
        assert ScheduleTimes(body(cron="* * * * *", tz=tz, start_at=end)).after(NEXT) is None
        assert ScheduleTimes(body(cron="0 0 1 1 *", tz=tz)).after(end - MINUTE) is None
    assert ScheduleTimes(body(every_us=MINUTE, start_at=end)).after(end) is None


# Runs of planned times that were made

MINUTELY = ScheduleTimes(ScheduleBody(msgspec.Raw(b"{}"), every_us=60))


def test_times_of_runs_are_left_out():
    found = UnmadeTimes(MINUTELY, [(120, 181), (240, 300)])
    assert [found.after(at) for at in (0, 60, 239, 300)] == [60, 300, 300, 360]
    assert [found.newest(at) for at in (500, 299, 200, 119, 59)] == [480, 60, 60, 60, 0]
    assert UnmadeTimes(MINUTELY, [(0, 10_000)]).newest(500) is None
    ending = ScheduleTimes(ScheduleBody(msgspec.Raw(b"{}"), every_us=60, end_at=600))
    assert UnmadeTimes(ending, [(300, 601)]).after(299) is None


def test_a_run_goes_on_until_firings_are_missed():
    first = begin(MINUTELY, 70)
    assert first == Position(120, 120)
    assert first.runs() == ()
    second = first.moved(FiringPlan((120,), 0, 180))
    assert second == Position(180, 120)
    assert second.runs() == ((120, 180),)
    assert second.moved(FiringPlan((600,), 7, 660, 600)) == Position(660, 600, ((120, 180),))
    assert Position(None, 120).runs() == ((120, limits.TIME_US_MAX + 1),)
    assert Position(None, None, ((1, 2),)).runs() == ((1, 2),)


def test_old_runs_are_forgotten():
    runs = tuple((number, number + 1) for number in range(20))
    assert len(Position(100, 50, runs).runs()) == 8
    assert Position(100, 50, runs).runs()[-1] == (50, 100)


def test_a_position_after_a_refused_firing():
    assert Position(180, 120).after_refusal(MINUTELY, 185) == Position(240, 120)
    assert Position(180, 120).after_refusal(MINUTELY, 700) == Position(720, 660, ((120, 180),))


def test_a_position_after_the_clock_was_set_back():
    ahead = Position(1_260, 1_200, ((60, 180),))
    assert ahead.realigned(MINUTELY, 100) == Position(180, 180, ((60, 180), (1_200, 1_260)))
    assert ahead.realigned(MINUTELY, 1_199) is None
    assert Position(180, 60).realigned(MINUTELY, 70) is None
    assert Position(None, 1_200).realigned(MINUTELY, 70) == Position(120, 120, ((1_200, limits.TIME_US_MAX + 1),))
    assert Position(None, 0).realigned(MINUTELY, 70) is None
