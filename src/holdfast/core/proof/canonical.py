"""JSON with one spelling only: RFC 8785 (JCS), for the values that are signed."""

from typing import Any

import msgspec

from holdfast.core.limits import INTEGER_MAX, NESTING_MAX
from holdfast.errors import LimitExceeded, ValidationError

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """`value` in its canonical form.

    Takes str, int within ±(2^53−1), bool, None, list and dict with text keys, of exactly these types. A float is refused: not
    every language writes the same one.
    """
    _check(value, 1)
    try:
        body = _encode_sorted(value)
    except UnicodeEncodeError:
        raise ValidationError("a canonical text holds no lone surrogate") from None
    # The encoder sorts keys by code point: the same as by UTF-16 unit, unless some lie beyond what one unit can say.
    return body if body.isascii() else _encode(_sorted(value))


def _check(value: Any, depth: int) -> None:
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
        _check(item, depth + 1)


def _sorted(value: Any) -> Any:
    """`value` with its objects in the order of their keys' UTF-16 units."""
    if type(value) is list:
        return [_sorted(item) for item in value]
    if type(value) is dict:
        return {key: _sorted(value[key]) for key in sorted(value, key=_utf16)}
    return value


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
