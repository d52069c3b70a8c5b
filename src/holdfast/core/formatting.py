"""Counts, times, errors and events as short texts for people, and texts made safe and short."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.core.model import EventType, StallReason

RETRIED = "retried"
"""Shown instead of `stalled` for an event that records a transient error. Another attempt follows."""
EVENT_ERROR_CHARACTERS_MAX = 200
_CHANGED_FIELDS: Mapping[str, str] = {EventType.MOVED: "queue", EventType.REPRIORITISED: "priority"}
"""The field of an event that is shown with its old and its new value."""


def pluralize(count: int, one: str, many: str | None = None) -> str:
    """Return `1 event` or `2,000 events`. `many` is the plural, if it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def iso_format(at: datetime, timespec: str = "auto") -> str:
    """Return a time in UTC as `2026-11-16T14:00:00Z`. `timespec` is that of `datetime.isoformat`."""
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")


def safe_str(value: object, default: str = "") -> str:
    """Return `str(value)`, or `default` if that raises. A text must not keep a job from failing."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a __str__ of user code may raise anything
        return default


def truncate_bytes(value: str, bytes_max: int) -> str:
    """Return the longest prefix of `value` that fits in UTF-8, in whole characters. A lone surrogate becomes a question mark."""
    return value.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def truncate(value: str, characters_max: int) -> str:
    """Return `value`, cut after `characters_max` characters and marked with an ellipsis if it is longer."""
    return value if len(value) <= characters_max else value[:characters_max] + "…"


def format_error(error: Any, characters_max: int) -> str:
    """Return the recorded error of an attempt in one line: `TransientError: the server said 503`."""
    if isinstance(error, dict) and "message" in error:
        error = f"{error['type']}: {error['message']}" if "type" in error else error["message"]
    line = str(error).strip().partition("\n")[0]
    return truncate(line, characters_max)


def is_retry(type_: str, reason: str | None) -> bool:
    """Return whether an event records that an attempt failed with a transient error."""
    return type_ == EventType.STALLED and reason == StallReason.TRANSIENT_ERROR


def describe_event(type_: str, reason: str | None, payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return what happened and why, for people to read. The reason is followed by the error, if there is one.

    A retry is `("retried", "TransientError: the server said 503")`.
    """
    if (name := _CHANGED_FIELDS.get(type_)) is not None and name in payload:
        return str(type_), f"from {payload[f'from_{name}']} to {payload[name]}"
    error = payload.get("error", payload.get("last_error"))
    line = "" if error is None else format_error(error, EVENT_ERROR_CHARACTERS_MAX)
    if is_retry(type_, reason):
        return RETRIED, line
    return str(type_), ": ".join(part for part in (reason, line) if part)
