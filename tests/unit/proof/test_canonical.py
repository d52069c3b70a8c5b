"""Canonical JSON: the samples of RFC 8785 and another implementation of it."""

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.limits import NESTING_MAX
from holdfast.errors import HoldfastError
from holdfast.proof.encoding import canonical

INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
KEYS = st.text(st.sampled_from('aZ1é\x80€\ue000\ufb33\uffff\U0001f600\U0010ffff\r"\\'), max_size=3) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def test_the_sample_of_the_rfc_is_encoded():
    value = {"string": '€$\x0f\nA\'B"\\\\"/', "literals": [None, True, False]}
    assert canonical(value) == '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'.encode()


def test_keys_are_sorted_as_in_the_rfc():
    value = {
        "€": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\x80": "Control",
        "ö": "Latin Small Letter O With Diaeresis",
    }
    expected = (
        '{"\\r":"Carriage Return","1":"One","\x80":"Control","ö":"Latin Small Letter O With Diaeresis",'
        '"€":"Euro Sign","\U0001f600":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )
    assert canonical(value) == expected.encode()


def test_every_character_is_escaped_as_in_another_implementation():
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    assert canonical(text) == rfc8785.dumps(text)


@given(VALUES)
def test_values_are_encoded_as_in_another_implementation(value: Any):
    assert canonical(value) == rfc8785.dumps(value)


def test_depth_is_bounded():
    value: Any = 1
    for _ in range(NESTING_MAX):
        value = [value]
    assert canonical(value) == b"[" * NESTING_MAX + b"1" + b"]" * NESTING_MAX
    with pytest.raises(HoldfastError, match="nested deeper") as caught:
        canonical({"a": value})
    assert caught.value.code == "limit_exceeded"


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        1.0,
        2**53,
        -(2**53),
        (1,),
        {1},
        b"1",
        {1: 2},
        {None: 1},
        {"a": [{"b": 0.5}]},
        "\ud800",
        {"\ud800": 1},
        ["é", "\udfff"],
    ],
    ids=ascii,
)
def test_values_without_a_canonical_form_are_refused(value: Any):
    with pytest.raises(HoldfastError) as caught:
        canonical(value)
    assert caught.value.code == "validation_error"
