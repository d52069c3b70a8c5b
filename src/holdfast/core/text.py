"""Counts, times, durations and lists as text, and texts made safe and short.

Fast commands import this, so it imports little.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_SECOND_US = 1_000_000


def pluralize(count: int, one: str, many: str | None = None) -> str:
    """Return `1 event` or `2,000 events`. `many` is the plural, if it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def iso_format(at: datetime, timespec: str = "auto") -> str:
    """Return a time in UTC as `2026-11-16T14:00:00Z`. `timespec` is that of `datetime.isoformat`."""
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")


def format_time_of_day(at: datetime, now: datetime) -> str:
    """Return the time of day in UTC, with the date unless it is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}Z" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _in_large_units(seconds: float, units: Sequence[str]) -> str | None:
    """Return days, hours or minutes, the largest of which there are at least two; None below two minutes."""
    for unit, size in zip(units, (86_400, 3_600, 60), strict=True):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return None


def format_duration(us: int) -> str:
    """Return a duration in a suitable unit, for a sentence: `2.5 s`, `12 s`, `3 min`, `2 h`."""
    long = _in_large_units(us / _SECOND_US, (" d", " h", " min"))
    return long or f"{format_seconds(us) if 0 < us < 10 * _SECOND_US else us // _SECOND_US} s"


def format_seconds(us: int) -> str:
    """Return a number of seconds, to a tenth: `6.5` or `31`."""
    return f"{us / _SECOND_US:.1f}".removesuffix(".0")


def format_age(passed: timedelta) -> str:
    """Return an age in its largest unit, if it has at least two of them, for a table: `90s`, `2m`, `3h`, `2d`."""
    seconds = max(0.0, passed.total_seconds())
    return _in_large_units(seconds, ("d", "h", "m")) or f"{seconds:.0f}s"


def format_elapsed(passed: timedelta) -> str:
    """Return how long something took: with milliseconds up to two minutes, then like an age."""
    seconds = passed.total_seconds()
    return _in_large_units(seconds, ("d", "h", "m")) or f"{seconds:.3f}s"


def format_setting_ms(ms: int) -> str:
    """Return a duration exactly, in the form that settings are written in: `90s`, `5m`, `1500ms`, `0s`."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    return next((f"{ms // size}{unit}" for unit, size in units if ms % size == 0), "") if ms else "0s"


def safe_str(value: object, default: str = "") -> str:
    """Return `str(value)`, or `default` if that raises. A text must not keep a job from failing."""
    try:
        return str(value)
    except BaseException:  # noqa: BLE001 - a __str__ of user code may raise anything
        return default


def truncate_bytes(value: str, bytes_max: int) -> str:
    """Return the longest prefix of `value` that fits in UTF-8, in whole characters. A lone surrogate becomes a question mark."""
    return value.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def truncate(value: str, characters_max: int) -> str:
    """Return `value`, cut after `characters_max` characters and marked with an ellipsis if it is longer."""
    return value if len(value) <= characters_max else value[:characters_max] + "…"


def truncate_start(value: str, bytes_max: int) -> str:
    """Return the longest suffix of `value` that fits in UTF-8, in whole characters.

    A NUL becomes a replacement character, and a lone surrogate a question mark.
    """
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace")[-bytes_max:].decode(errors="ignore")


def join_some(items: Sequence[object], shown_max: int = 5) -> str:
    """Return a text like `1, 2, 3 and 4 more`."""
    more = len(items) - shown_max
    return ", ".join(map(str, items[:shown_max])) + (f" and {more:,} more" if more > 0 else "")
