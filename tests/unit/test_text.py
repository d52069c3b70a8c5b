"""Durations and lists as text, and texts made safe and short."""

from datetime import timedelta

import pytest

from holdfast.core.text import (
    format_age,
    format_elapsed,
    format_seconds,
    format_setting_ms,
    join_some,
    safe_str,
    truncate,
    truncate_bytes,
    truncate_start,
)


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_value_that_has_no_text_gets_the_default() -> None:
    assert (safe_str(Awkward()), safe_str(Awkward(), "?"), safe_str(1)) == ("", "?", "1")


def test_a_long_text_is_cut_in_whole_characters() -> None:
    assert (truncate("abc", 3), truncate("abcd", 3)) == ("abc", "abc…")
    assert (truncate_bytes("aé", 2), truncate_bytes("aé", 3), truncate_bytes("\ud800x", 9)) == ("a", "aé", "?x")
    assert (truncate_start("éa", 2), truncate_start("éa", 3), truncate_start("\0\ud800x", 9)) == ("a", "éa", "\ufffd?x")


@pytest.mark.parametrize(
    ("seconds", "age", "elapsed"),
    [
        (-1.0, "0s", "-1.000s"),
        (1.25, "1s", "1.250s"),
        (119.0, "119s", "119.000s"),
        (120.0, "2m", "2m"),
        (7_200.0, "2h", "2h"),
        (200_000.0, "2d", "2d"),
    ],
)
def test_an_age_has_one_unit_and_a_short_time_milliseconds(seconds: float, age: str, elapsed: str) -> None:
    passed = timedelta(seconds=seconds)
    assert (format_age(passed), format_elapsed(passed)) == (age, elapsed)


def test_seconds_have_a_tenth_if_it_is_not_zero() -> None:
    assert [format_seconds(us) for us in (0, 6_500_000, 31_000_000)] == ["0", "6.5", "31"]


def test_a_setting_is_exact_in_its_largest_unit() -> None:
    found = [format_setting_ms(ms) for ms in (0, 1_500, 90_000, 300_000, 7_200_000, 86_400_000)]
    assert found == ["0s", "1500ms", "90s", "5m", "2h", "1d"]


def test_a_long_list_is_shortened() -> None:
    assert (join_some([1, 2], 2), join_some(range(1_003), 2), join_some([])) == ("1, 2", "0, 1 and 1,001 more", "")
