"""Wide and combining characters take the columns that a terminal gives them."""

import pytest

from holdfast.cli.output import Page, clip, display_width, pad, shorten


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("é", 1),
        ("e\u0301", 1),
        ("日本", 4),
        ("한", 2),
        ("\u1112\u1161\u11ab", 2),
        ("🚀", 2),
        ("\uff21", 2),
        ("█░–", 3),
    ],
)
def test_the_width_of_a_text_is_counted_in_columns(text: str, columns: int) -> None:
    assert display_width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "left"),
    [("abc", 2, "ab"), ("日本", 3, "日"), ("日本", 4, "日本"), ("日", 1, ""), ("e\u0301x", 1, "e\u0301"), ("a", 0, "")],
)
def test_a_text_is_cut_to_fit_its_columns(text: str, columns: int, left: str) -> None:
    assert clip(text, columns) == left
    assert display_width(shorten(text * 9, 8)) <= 8
    assert display_width(pad(text, 9)) == display_width(pad(text, 9, to_right=True)) == 9


NAMES = ["plain", "日本語のキュー", "e\u0301te\u0301", "🚀🚀", "한글", "x" * 300, "長" * 300]


def test_a_table_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Page().table(("name", "then"), [(name, "HERE") for name in NAMES])
    _, *lines = capsys.readouterr().out.splitlines()
    assert len({display_width(line[: line.index("HERE")]) for line in lines}) == 1
