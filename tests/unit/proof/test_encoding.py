"""One encoding for bytes and times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.limits import TIME_US_MAX
from holdfast.errors import ValidationError
from holdfast.proof.encoding import from_base64, from_hex, from_iso, to_base64, to_iso


@given(st.binary(max_size=40))
def test_base64_is_read_back(body: bytes):
    assert from_base64("it", to_base64(body)) == body


@pytest.mark.parametrize("text", ["YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "Y-_=", "é", "YQ==YQ=="])
def test_invalid_base64_is_refused(text: str):
    with pytest.raises(ValidationError):
        from_base64("it", text)


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "A" * 64, " " + "0" * 63, "g" * 64, "0" * 64 + "\n"])
def test_invalid_hex_is_refused(text: str):
    assert from_hex("it", "0a" * 32) == b"\n" * 32
    with pytest.raises(ValidationError):
        from_hex("it", text)


@given(st.integers(0, TIME_US_MAX))
def test_times_are_read_back(at: int):
    assert from_iso("at", to_iso(at)) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-26T00:00:00.000Z", 1_769_385_600_000_000),
        ("2026-01-26T00:00:00.001002Z", 1_769_385_600_001_002),
        ("2024-02-29T23:59:59.999Z", 1_709_251_199_999_000),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_times_are_read(text: str, at: int):
    assert from_iso("at", text) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-26T00:00:00",
        "2026-01-26T00:00:00z",
        "2026-01-26T00:00:00+00:00",
        "2026-01-26 00:00:00Z",
        "2026-01-26T00:00:00.1Z",
        "2026-01-26T00:00:00.0000000Z",
        "2026-01-26T00:00:00,000Z",
        "2026-1-26T00:00:00Z",
        "2026-01-26T00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-26T24:00:00Z",
        "2026-01-26T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "2026-01-26T00:00:00Z\n",
        "\u0662\u0660\u0662\u0666-01-26T00:00:00Z",
    ],
)
def test_invalid_times_are_refused(text: str):
    with pytest.raises(ValidationError):
        from_iso("at", text)
