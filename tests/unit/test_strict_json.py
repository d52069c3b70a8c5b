"""JSON that every parser reads in the same way."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import strict_json
from holdfast.core.limits import NESTING_MAX
from holdfast.errors import HoldfastError, LimitExceeded

MOST = 1_000


def _nested(levels: int, core: Any) -> Any:
    value = core
    for _ in range(levels - 1):
        value = [value]
    return value


def _code_of_encode(value: Any, most: int = MOST) -> str:
    with pytest.raises(HoldfastError) as caught:
        strict_json.encode("it", value, most)
    assert caught.value.context["field"] == "it"
    return caught.value.code


def _code_of_check(body: bytes, most: int = MOST) -> str:
    with pytest.raises(HoldfastError) as caught:
        strict_json.check("it", body, most)
    assert caught.value.context["field"] == "it"
    return caught.value.code


def test_size_is_counted_in_bytes():
    assert strict_json.encode("it", "é", 4) == '"é"'.encode()
    assert _code_of_encode("é", 3) == "limit_exceeded"
    assert strict_json.check("it", b"1234", 4) == b"1234"
    assert _code_of_check(b"12345", 4) == "limit_exceeded"


@pytest.mark.parametrize("core", [[], [1], {"a": "b"}, (1,)], ids=repr)
def test_nesting_past_the_limit_is_refused_for_values_and_bytes(core: Any):
    assert _code_of_encode(_nested(65, core)) == "limit_exceeded"
    assert _code_of_check(b"[" * 65 + b"1" + b"]" * 65) == "limit_exceeded"


@pytest.mark.parametrize("levels", [2_000, 200_000])
def test_endless_nesting_is_refused_for_values_and_bytes(levels: int):
    assert _code_of_encode(_nested(levels, [])) == "limit_exceeded"
    assert _code_of_check(b"[" * levels + b"]" * levels, 10**6) == "limit_exceeded"


class Text(str):
    """A text of another type, as template engines make them."""

    __slots__ = ()


class Number(int):
    pass


def test_subclasses_of_text_and_numbers_are_written_as_their_base() -> None:
    value = {Text("a"): [Text("b"), None, True, 1.5, (Number(3), {"c": Text("d")})]}
    assert strict_json.encode("args", value, 1_000) == b'{"a":["b",null,true,1.5,[3,{"c":"d"}]]}'
    with pytest.raises(LimitExceeded):
        strict_json.encode("args", [Text("a" * 1_000)], 1_000)


_TEXTS = st.text(alphabet=st.sampled_from('ab "\\[]{}:,\t\n\u00e4\u2028\U0001f600\x000123456789'), max_size=20)
_NUMBERS = st.integers() | st.floats(allow_nan=False) | st.sampled_from([0, -0.0, 1e22, 2**53 - 1, 2**53, -(2**53), 10**30])
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)
_WRITTEN = st.builds(
    lambda value, indent, escaped, spread: json.dumps(
        value, indent=indent, ensure_ascii=escaped, separators=(" , ", " :\t") if spread else (",", ":")
    ),
    _VALUES,
    st.none() | st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
_PIECES = [*"[]{}:,1 \n", '"a"', "-0", "1.50", "1e400", "NaN", '"\\u0061"', '"\\ud800"', '"]"', '"["']
_MANGLED = st.lists(st.sampled_from(_PIECES), max_size=16).map("".join)
_DEEP = st.builds(
    lambda levels, first, last: first * levels + "1" + last * levels,
    st.integers(NESTING_MAX - 2, NESTING_MAX + 6),
    st.sampled_from(["[", '["]",', '{"a":', '{"[":']),
    st.sampled_from(["]", ',"["]', "}", ',"]":2}']),
)


@settings(max_examples=500)
@given(_WRITTEN | _MANGLED | _DEEP, st.sampled_from([0, 4]))
def test_the_fast_way_to_check_bytes_refuses_the_same_as_the_slow_one(text: str, levels_around: int) -> None:
    body = text.encode("utf-8", "surrogatepass")

    def slow() -> None:
        strict_json._check_value("body", strict_json.parse("body", body, 10_000), 1 - levels_around)

    def fast() -> None:
        assert strict_json.check("body", body, 10_000, levels_around=levels_around) is body

    assert _refusal(fast) == _refusal(slow)


def _refusal(work: Callable[[], None]) -> tuple[str, str] | None:
    try:
        work()
    except HoldfastError as error:
        return error.code, error.message
    return None


def test_texts_with_escapes_are_checked_for_nesting_value_by_value():
    wide = [["\\"] for _ in range(NESTING_MAX + 1)]
    body = json.dumps(wide, separators=(",", ":")).encode()
    assert strict_json.check("it", body, 10 * MOST) == body


def test_a_checked_part_is_within_the_limits() -> None:
    part = strict_json.CheckedJson(b'{"a": [1, 2]}')
    assert strict_json.check_part("it", part, MOST) == part
    with pytest.raises(LimitExceeded, match="has 13 bytes"):
        strict_json.check_part("it", part, 12)


@pytest.mark.parametrize("is_escaped", [False, True])
def test_the_nesting_of_a_checked_part_is_limited(is_escaped: bool) -> None:
    core = ["\\", *[[]] * NESTING_MAX] if is_escaped else [[]] * NESTING_MAX
    body = json.dumps(_nested(NESTING_MAX - 1, core)).encode()
    assert strict_json.check_part("it", strict_json.CheckedJson(body), MOST * 9) == body
    with pytest.raises(LimitExceeded, match="nested deeper"):
        strict_json.check_part("it", strict_json.CheckedJson(b"[%s]" % body), MOST * 9)
