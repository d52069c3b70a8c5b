"""Counts and times as text, and texts made safe and short. Light commands import this, so it imports next to nothing."""

from datetime import datetime


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
