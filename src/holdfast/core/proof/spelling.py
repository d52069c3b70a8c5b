"""Bytes and times as text, each with one spelling only: what reads back differently is refused."""

import base64
import re
from datetime import UTC, datetime, timedelta

from holdfast.core.model import Micros
from holdfast.errors import ValidationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{6}|[0-9]{3}))?Z")
_HEX_32 = re.compile("[0-9a-f]{64}")
_SECOND_US = 1_000_000


def to_base64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def from_base64(what: str, text: str) -> bytes:
    """The bytes behind standard base64 with its padding."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if to_base64(found) != text:
        raise ValidationError(f"{what} is not in base64", field=what)
    return found


def from_hex(what: str, text: str) -> bytes:
    """The 32 bytes behind lower-case hex digits."""
    if not _HEX_32.fullmatch(text):
        raise ValidationError(f"{what} must be 64 lower-case hex digits", field=what)
    return bytes.fromhex(text)


def to_iso(at: Micros) -> str:
    """`at` with as few of three or six decimals as it needs: whole milliseconds have three."""
    found = _EPOCH + timedelta(microseconds=at)
    return found.isoformat(timespec="microseconds" if at % 1_000 else "milliseconds").replace("+00:00", "Z")


def from_iso(what: str, text: str) -> Micros:
    """Microseconds behind YYYY-MM-DDTHH:MM:SS, with no, three or six decimals, in UTC and said so by a Z."""
    found = _ISO.fullmatch(text)
    if not found:
        raise ValidationError(f"{what} must be a time like 2026-01-26T00:00:00.000Z", field=what)
    try:
        seconds = (datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        raise ValidationError(f"{what} is a time that no calendar has", field=what) from None
    return seconds * _SECOND_US + int((found[2] or "").ljust(6, "0"))
