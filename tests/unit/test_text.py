"""Texts made safe and short."""

from holdfast.text import safe_str, truncate, truncate_bytes


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_value_that_has_no_text_gets_the_default() -> None:
    assert (safe_str(Awkward()), safe_str(Awkward(), "?"), safe_str(1)) == ("", "?", "1")


def test_a_long_text_is_cut_in_whole_characters() -> None:
    assert (truncate("abc", 3), truncate("abcd", 3)) == ("abc", "abc…")
    assert (truncate_bytes("aé", 2), truncate_bytes("aé", 3), truncate_bytes("\ud800x", 9)) == ("a", "aé", "?x")
