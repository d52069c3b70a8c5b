"""Strict JSON: encode, parse and check values that every JSON reader understands in the same way."""

import json
import math
from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec

from holdfast.core.limits import INTEGER_MAX, NESTING_MAX, check_integer, plain_text
from holdfast.errors import LimitExceeded, ValidationError

DIGITS_MAX = len(str(-INTEGER_MAX))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
LONG_DIGITS = len(str(INTEGER_MAX))


def encode(what: str, value: Any, bytes_max: int) -> bytes:
    """Return `value` as JSON bytes, or raise ValidationError or LimitExceeded.

    The fast path encodes, decodes and compares: an equal value lost nothing. The value is walked only if it is not equal (a
    tuple, a NaN, a key that is not a text), or if it may contain a long number or deep nesting.
    """
    try:
        body = _encode(value)
        faithful = _decode(body) == value
    except UnicodeEncodeError:
        raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
    except RecursionError:
        raise LimitExceeded(f"{what} is nested deeper than {NESTING_MAX}", field=what, limit=NESTING_MAX) from None
    except (TypeError, ValueError, msgspec.MsgspecError):
        _check_value(what, value, 1)
        body, faithful = _encode(_to_plain(value)), True  # it has a subclass of str, int or float, which the encoder refuses
    size = len(body)
    if not faithful or _has_long_number(body) or (size > 2 * NESTING_MAX and _is_deeper(body, NESTING_MAX)):
        _check_value(what, value, 1)
    if size > bytes_max:
        check_size(what, size, bytes_max)
    return body


def check(what: str, body: bytes, bytes_max: int, *, levels_around: int = 0) -> bytes:
    """Return `body` if it is strict JSON within the limits. `levels_around` are outer levels that do not count as nesting.

    The fast path decodes and encodes again: bytes that are the same except for blanks lost nothing. They are read value by value
    only if they are not the same (a key given twice, a number written in another way), or may have a long number.
    """
    check_size(what, len(body), bytes_max)
    if not _is_plain(body, NESTING_MAX + levels_around):
        _check_value(what, parse(what, body, bytes_max), 1 - levels_around)
    return body


class CheckedJson(bytes):
    """Strict JSON that was checked as a part of a larger value, without blanks around it. Its size and nesting were not."""

    __slots__ = ()


def check_part(what: str, body: CheckedJson, bytes_max: int) -> bytes:
    """Return `body` if it is within the limits."""
    check_size(what, len(body), bytes_max)
    return check(what, body, bytes_max) if _is_deeper(body, NESTING_MAX) else body


def _is_plain(body: bytes, levels_max: int) -> bool:
    """Return whether `body` is strict JSON that is written as an encoder writes it, with blanks anywhere between its parts."""
    try:
        again = _encode(_decode(body))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    is_same = again == body or again.translate(None, _BLANKS) == body.translate(None, _BLANKS)
    return is_same and not _has_long_number(again) and not _is_deeper(again, levels_max)


_BLANKS = b" \t\r\n"
_TO_ZERO = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
_ZEROS = b"0" * LONG_DIGITS
_NOT_STRUCTURE = bytes(code for code in range(256) if chr(code) not in '[]{}"')
_TO_BRACES = bytes.maketrans(b"[]", b"{}")


def _has_long_number(body: bytes) -> bool:
    """Return whether `body` has a number, or a text, with as many digits as a number that is too large."""
    return len(body) >= LONG_DIGITS and _ZEROS in body.translate(_TO_ZERO)


def _is_deeper(body: bytes, levels_max: int) -> bool:
    """Return whether valid JSON may be nested deeper than this."""
    if body.count(b"[") + body.count(b"{") <= levels_max:
        return False
    if b"\\" in body:
        return True
    braces = b"".join(body.translate(_TO_BRACES, _NOT_STRUCTURE).split(b'"')[::2])
    for _ in range(levels_max):
        if not braces:
            return False
        braces = braces.replace(b"{}", b"")  # it removes the innermost level
    return bool(braces)


def parse(what: str, body: bytes, bytes_max: int, digits_max: int = DIGITS_MAX) -> Any:
    """Return the value of `body`. Raise if an object has a key twice or an integer has more than `digits_max` characters.

    The caller has to check the values: a number may be too large for a float, a text may have a lone surrogate.
    """
    check_size(what, len(body), bytes_max)
    try:
        integer = partial(_read_integer, digits_max)
        return json.loads(body.decode(), object_pairs_hook=_read_object, parse_constant=_refuse_constant, parse_int=integer)
    except RecursionError:
        raise LimitExceeded(f"{what} is nested deeper than {NESTING_MAX}", field=what, limit=NESTING_MAX) from None
    except ValueError as error:
        raise ValidationError(f"{what} is not strict JSON: {error}", field=what) from None


def check_size(what: str, size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise LimitExceeded(f"{what} has {size} bytes; the limit is {bytes_max}", field=what, actual=size, limit=bytes_max)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a key twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_integer(digits_max: int, digits: str) -> int:
    if len(digits) > digits_max:
        raise ValueError("a number has too many digits")
    return int(digits)


def _check_number(what: str, value: int | float) -> None:
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise ValidationError(f"{what} holds a whole number beyond ±{INTEGER_MAX}: send it as a text", field=what)
    if not math.isfinite(value):
        raise ValidationError(f"{what} holds a number that is not finite", field=what)


def _check_value(what: str, value: Any, depth: int) -> None:
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
                _check_value(what, item, depth + 1)
        case dict():
            for key, item in value.items():
                _check_key(what, key)
                _check_value(what, item, depth + 1)
        case _:
            raise ValidationError(f"{what} holds a {type(value).__name__}, which JSON does not have", field=what)


def _to_plain(value: Any) -> Any:
    """Return a checked `value` with JSON's own types only."""
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
            return [_to_plain(item) for item in value]
        case _:
            return {plain_text(key): _to_plain(item) for key, item in value.items()}


def _check_key(what: str, key: Any) -> None:
    if not isinstance(key, str):
        raise ValidationError(f"{what} has a key that is not a text: {key!r:.80}", field=what)
    _check_string(what, key)


def _check_string(what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None


U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
HASH_BYTES = 32
RECORD_BYTES_MAX = 65_536
"""JSON of one record. The largest, a restart controller with a thousand restarts, has about 22,000 bytes."""

Choice = TypeVar("Choice", bound=StrEnum)


def check_u32(what: str, value: Any) -> int:
    return check_integer(what, value, 0, U32_MAX)


def check_u64(what: str, value: Any) -> int:
    return check_integer(what, value, 0, U64_MAX)


def check_hash(what: str, value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != HASH_BYTES:
        raise ValidationError(f"{what} must be {HASH_BYTES} bytes", field=what)
    return value


def check_string(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationError(f"{what} must be a text, not {type(value).__name__}", field=what)
    return value


def check_choice(what: str, value: Any, kind: type[Choice]) -> Choice:
    """Return `value` if it is a member of `kind`. A plain text is refused: `read_choice` reads those."""
    if not isinstance(value, kind):
        raise ValidationError(f"{what} must be a {kind.__name__}, not {type(value).__name__}", field=what)
    return value


def fits_utf8(value: str, bytes_max: int) -> bool:
    """Return whether `value` is valid Unicode of at most `bytes_max` UTF-8 bytes."""
    try:
        return len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def read_object(what: str, text: str | bytes, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of the JSON object in `text`. Raise if a required field is missing or a field is unknown."""
    return check_fields(what, _parse_record(what, text), required, optional)


def check_fields(what: str, value: Any, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValidationError(f"{what} must be a JSON object", field=what)
    known, needed = {*required, *optional}, {*required}
    if unknown := sorted(value.keys() - known):
        raise ValidationError(f"{what} has no field {unknown[0]!a:.80}", field=what)
    if missing := sorted(needed - value.keys()):
        raise ValidationError(f"{what} lacks the field {missing[0]!r}", field=what)
    return value


def read_text(what: str, value: Any, bytes_max: int) -> str:
    text = check_string(what, value)
    if not fits_utf8(text, bytes_max):
        raise LimitExceeded(f"{what} must be valid Unicode of at most {bytes_max} bytes", field=what, limit=bytes_max)
    return text


def read_hash(what: str, value: Any) -> bytes:
    """Return the bytes of an array of 32 numbers from 0 to 255."""
    if not isinstance(value, list) or len(value) != HASH_BYTES:
        raise ValidationError(f"{what} must be an array of {HASH_BYTES} numbers", field=what)
    return bytes(check_integer(what, number, 0, 255) for number in value)


def read_choice(what: str, value: Any, kind: type[Choice]) -> Choice:
    """Return the member of `kind` with this name, spelled `clean_exit` (as it is written) or `CleanExit`."""
    for member in kind:
        if isinstance(value, str) and value in (member.value, pascal_case(member.value)):
            return member
    raise ValidationError(f"{what} must be one of {', '.join(kind)}", field=what)


def pascal_case(name: str) -> str:
    """Return `CleanExit` for `clean_exit`."""
    return "".join(word.capitalize() for word in name.split("_"))


def encode_record(value: Any) -> str:
    """Return JSON without blanks, with the fields in the given order."""
    return msgspec.json.encode(value).decode()


def _parse_record(what: str, text: Any) -> Any:
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
    if not isinstance(text, bytes):
        raise ValidationError(f"{what} is read from JSON text, not from {type(text).__name__}", field=what)
    return parse(what, text, RECORD_BYTES_MAX, digits_max=len(str(U64_MAX)))
