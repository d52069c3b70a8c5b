"""Numbers, texts and objects of a fixed size, read from JSON that says each thing once and nothing else."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from holdfast.core import strictjson
from holdfast.core.limits import check_integer
from holdfast.errors import LimitExceeded, ValidationError

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
HASH_BYTES = 32
RECORD_BYTES_MAX = 65_536
"""JSON of one record; the largest, a restart controller that remembers a thousand restarts, has about 22,000 bytes."""

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
    """`value`, if it is a member of `kind`. Its bare text is not: that is for `read_choice`."""
    if not isinstance(value, kind):
        raise ValidationError(f"{what} must be a {kind.__name__}, not {type(value).__name__}", field=what)
    return value


def fits(value: str, bytes_max: int) -> bool:
    """Whether `value` is valid Unicode of at most `bytes_max` UTF-8 bytes."""
    try:
        return len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def truncate(value: str, bytes_max: int) -> str:
    """The longest beginning of `value` that fits, in whole characters. A lone surrogate becomes a question mark."""
    return value.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def read_object(what: str, text: str | bytes, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of the JSON object in `text`: all that are required, and none that is not known."""
    return check_fields(what, _parse(what, text), required, optional)


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
    if not fits(text, bytes_max):
        raise LimitExceeded(f"{what} must be valid Unicode of at most {bytes_max} bytes", field=what, limit=bytes_max)
    return text


def read_hash(what: str, value: Any) -> bytes:
    """The bytes behind an array of 32 numbers from 0 to 255."""
    if not isinstance(value, list) or len(value) != HASH_BYTES:
        raise ValidationError(f"{what} must be an array of {HASH_BYTES} numbers", field=what)
    return bytes(check_integer(what, number, 0, 255) for number in value)


def read_choice(what: str, value: Any, kind: type[Choice]) -> Choice:
    """The member of `kind` behind either of its spellings: `clean_exit`, which is the one that is written, or `CleanExit`."""
    for member in kind:
        if isinstance(value, str) and value in (member.value, pascal_case(member.value)):
            return member
    raise ValidationError(f"{what} must be one of {', '.join(kind)}", field=what)


def pascal_case(name: str) -> str:
    """`clean_exit` as `CleanExit`."""
    return "".join(word.capitalize() for word in name.split("_"))


def write(value: Any) -> str:
    """JSON without blanks, fields in the order they are given."""
    return msgspec.json.encode(value).decode()


def _parse(what: str, text: Any) -> Any:
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
    if not isinstance(text, bytes):
        raise ValidationError(f"{what} is read from JSON text, not from {type(text).__name__}", field=what)
    return strictjson.parse(what, text, RECORD_BYTES_MAX, digits_max=len(str(U64_MAX)))
