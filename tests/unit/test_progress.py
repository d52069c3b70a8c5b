"""The progress that a program reports: which number is recorded."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.limits import INTEGER_MAX
from holdfast.core.progress import read_progress


class Hostile:
    def __gt__(self, other: object) -> bool:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("reported", "recorded"),
    [
        (0, 0),
        (7, 7),
        (33.3, 33),
        (33.999, 33),
        (-0.5, 0),
        (-7, 0),
        (0.0, 0),
        (0.004, 0),
        (0.29, 29),
        (0.57, 57),
        (0.5, 50),
        (0.999999999999, 99),
        (1.0, 1),
        (1.5, 1),
        (Decimal("0.25"), 25),
        (Decimal("33.3"), 33),
        (Fraction(1, 3), 33),
        (1e300, INTEGER_MAX),
        (Decimal("1e99999999"), INTEGER_MAX),
        (Decimal("-1e99999999"), 0),
        (10**30, INTEGER_MAX),
    ],
)
def test_any_finite_number_is_recorded(reported: Any, recorded: int) -> None:
    assert read_progress(reported) == recorded


@pytest.mark.parametrize(
    "reported", [None, "33", b"1", True, math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("Infinity"), [1], 1j, Hostile()]
)
def test_what_cannot_be_read_is_none(reported: Any) -> None:
    assert read_progress(reported) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_never_rounded_up(reported: float) -> None:
    found = read_progress(reported)
    assert found is not None
    assert 0 <= found <= INTEGER_MAX
    assert found <= max(0.0, 100 * reported + 1e-9 if 0 < reported < 1 else reported)
