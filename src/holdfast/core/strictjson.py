"""JSON that means the same to everybody: no NaN, no duplicate keys, no number that loses digits, bounded size and depth.

Values come in as Python objects (`encode`) or as bytes from elsewhere (`check`). Bytes are kept as they came.
"""

import json
import math
import re
from functools import partial
from typing import Any, NoReturn

import msgspec

from holdfast.core.limits import INTEGER_MAX, NESTING_MAX, plain_text
from holdfast.errors import LimitExceeded, ValidationError

DIGITS_MAX = len(str(-INTEGER_MAX))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
LONG_DIGITS = len(str(INTEGER_MAX))
_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % LONG_DIGITS)


def encode(what: str, value: Any, bytes_max: int) -> bytes:
    """`value` as JSON bytes, or a refusal.

    The fast road: encode, decode, compare. What comes back equal lost nothing; only what does not (a tuple, a NaN, a key
    that is no text) or what might hide a long number or deep nesting is walked.
    """
    try:
        body = _encode(value)
        faithful = _decode(body) == value
    except UnicodeEncodeError:
        raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
    except RecursionError:
        raise LimitExceeded(f"{what} is nested deeper than {NESTING_MAX}", field=what, limit=NESTING_MAX) from None
    except (TypeError, ValueError, msgspec.MsgspecError):
        _walk(what, value, 1)
        body, faithful = _encode(_plain(value)), True  # it holds a kind of text or number that the encoder does not know
    size = len(body)
    if not faithful or (size >= LONG_DIGITS and _LONG_DIGITS.search(body)) or (size > 2 * NESTING_MAX and _deep(body)):
        _walk(what, value, 1)
    if size > bytes_max:
        check_size(what, size, bytes_max)
    return body


def _deep(body: bytes) -> bool:
    """May be nested too deep: there are that many openings."""
    return body.count(b"[") + body.count(b"{") > NESTING_MAX


def check(what: str, body: bytes, bytes_max: int) -> bytes:
    """`body`, if it is strict JSON within the limits."""
    _walk(what, parse(what, body, bytes_max), 1)
    return body


def parse(what: str, body: bytes, bytes_max: int, digits_max: int = DIGITS_MAX) -> Any:
    """What `body` says, if it is JSON that names no key twice and whose whole numbers have at most `digits_max` characters.

    The values in it are the caller's to look at: a number may be too large for a float, a text may hold a lone surrogate.
    """
    check_size(what, len(body), bytes_max)
    try:
        integer = partial(_integer, digits_max)
        return json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_constant, parse_int=integer)
    except RecursionError:
        raise LimitExceeded(f"{what} is nested deeper than {NESTING_MAX}", field=what, limit=NESTING_MAX) from None
    except ValueError as error:
        raise ValidationError(f"{what} is not strict JSON: {error}", field=what) from None


def check_size(what: str, size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise LimitExceeded(f"{what} has {size} bytes; the limit is {bytes_max}", field=what, actual=size, limit=bytes_max)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a key twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits_max: int, digits: str) -> int:
    if len(digits) > digits_max:
        raise ValueError("a number has too many digits")
    return int(digits)


def _check_number(what: str, value: int | float) -> None:
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise ValidationError(f"{what} holds a whole number beyond ±{INTEGER_MAX}: send it as a text", field=what)
    if not math.isfinite(value):
        raise ValidationError(f"{what} holds a number that is not finite", field=what)


def _walk(what: str, value: Any, depth: int) -> None:
    if depth > NESTING_MAX and isinstance(value, list | tuple | dict):
        raise LimitExceeded(f"{what} is nested deeper than {NESTING_MAX}", field=what, limit=NESTING_MAX)
    match value:
        case None | bool():
            return
        case str():
            _check_string(what, value)
        case int() | float():
            _check_number(what, value)
        case list() | tuple():
            for item in value:
                _walk(what, item, depth + 1)
        case dict():
            for key, item in value.items():
                _check_key(what, key)
                _walk(what, item, depth + 1)
        case _:
            raise ValidationError(f"{what} holds a {type(value).__name__}, which JSON does not have", field=what)


def _plain(value: Any) -> Any:
    """`value`, which was walked, of JSON's own types alone."""
    match value:
        case None | bool():
            return value
        case str():
            return plain_text(value)
        case int():
            return int.__add__(value, 0)
        case float():
            return float.__mul__(value, 1.0)
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return {plain_text(key): _plain(item) for key, item in value.items()}


def _check_key(what: str, key: Any) -> None:
    if not isinstance(key, str):
        raise ValidationError(f"{what} has a key that is not a text: {key!r:.80}", field=what)
    _check_string(what, key)


def _check_string(what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
