"""Numbers and errors in sentences."""

from typing import Any


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 event`, `2,000 events`; `many` is for words whose plural takes more than an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def error_line(error: Any, characters_max: int) -> str:
    """An error that was recorded with an attempt, in one line: `TransientError: the server said 503`."""
    if isinstance(error, dict) and "message" in error:
        error = f"{error['type']}: {error['message']}" if "type" in error else error["message"]
    line = str(error).strip().partition("\n")[0]
    return line if len(line) <= characters_max else line[:characters_max] + "…"
