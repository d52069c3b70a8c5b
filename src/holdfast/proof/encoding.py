"""Encodings in which each value has exactly one form: canonical JSON (RFC 8785), base64, hex and ISO times."""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.limits import INTEGER_MAX, NESTING_MAX
from holdfast.core.model import Micros
from holdfast.core.text import iso_format
from holdfast.errors import LimitExceeded, ValidationError

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """Return `value` in its canonical form.

    It accepts str, int within ±(2^53−1), bool, None, list, and dict with text keys, of exactly these types. A float is
    refused, because not all languages write floats in the same way.
    """
    _check_canonical(value, 1)
    try:
        body = _encode_sorted(value)
    except UnicodeEncodeError:
        raise ValidationError("a canonical text cannot have a lone surrogate") from None
    # The encoder sorts keys by code point. RFC 8785 sorts by UTF-16 unit, which differs only beyond U+FFFF.
    return body if body.isascii() else _encode(_sort_keys(value))


def _check_canonical(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise ValidationError(f"a canonical number is within ±{INTEGER_MAX}")
        return
    if kind is not dict and kind is not list:
        raise ValidationError(f"{kind.__name__} has no canonical form")
    if depth > NESTING_MAX:
        raise LimitExceeded(f"a canonical value is nested deeper than {NESTING_MAX}", limit=NESTING_MAX)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise ValidationError(f"a canonical object has texts for keys, not {type(key).__name__}")
        value = value.values()
    for item in value:
        _check_canonical(item, depth + 1)


def _sort_keys(value: Any) -> Any:
    """Return `value` with the keys of its objects sorted by UTF-16 units."""
    if type(value) is list:
        return [_sort_keys(item) for item in value]
    if type(value) is dict:
        return {key: _sort_keys(value[key]) for key in sorted(value, key=_utf16)}
    return value


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{6}|[0-9]{3}))?Z")
_HEX_32 = re.compile("[0-9a-f]{64}")
_SECOND_US = 1_000_000


def to_base64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def from_base64(what: str, text: str) -> bytes:
    """Return the bytes of standard base64 with padding."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if to_base64(found) != text:
        raise ValidationError(f"{what} is not in base64", field=what)
    return found


def from_hex(what: str, text: str) -> bytes:
    """Return the 32 bytes of 64 lower-case hex digits."""
    if not _HEX_32.fullmatch(text):
        raise ValidationError(f"{what} must be 64 lower-case hex digits", field=what)
    return bytes.fromhex(text)


def to_iso(at: Micros) -> str:
    """Return `at` with three decimals if it is a whole number of milliseconds, else with six."""
    found = _EPOCH + timedelta(microseconds=at)
    return iso_format(found, "microseconds" if at % 1_000 else "milliseconds")


def from_iso(what: str, text: str) -> Micros:
    """Return the microseconds of YYYY-MM-DDTHH:MM:SSZ, with no, three or six decimals before the Z."""
    found = _ISO.fullmatch(text)
    if not found:
        raise ValidationError(f"{what} must be a time like 2026-01-26T00:00:00.000Z", field=what)
    try:
        seconds = (datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        raise ValidationError(f"{what} is not a valid date and time", field=what) from None
    return seconds * _SECOND_US + int((found[2] or "").ljust(6, "0"))
