"""Reading a file that anybody may have written: line by line, no line longer than it may be."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from holdfast.core.limits import EXPORT_LINE_BYTES_MAX
from holdfast.core.proof.exported import Header, Line, read_header, read_line
from holdfast.errors import ValidationError
from holdfast.verify.wording import decoded, in_words, shown

_GZIP = b"\x1f\x8b"
_UNREAD = "the line cannot be read: "
"""How the message of a line begins that has another shape than it should."""


class BadLine(ValidationError):
    """A line that cannot be read, and the event that it is about as far as it says so."""

    def __init__(self, message: str, job_id: int | None = None, rev: int | None = None, event: str | None = None) -> None:
        super().__init__(message)
        self.job_id, self.rev, self.event = job_id, rev, event


def header_of(file: BinaryIO) -> Header:
    """The first line."""
    body = file.readline(EXPORT_LINE_BYTES_MAX + 1)
    if not body:
        raise ValidationError("the file is empty")
    if body.startswith(_GZIP):
        raise ValidationError("the file is compressed: unpack it first")
    try:
        return read_header(_bounded(body))
    except ValidationError as error:
        if not error.message.startswith(_UNREAD):
            raise
        raise ValidationError("the first line is not that of an export or of a proof of Holdfast's") from None


def lines_of(file: BinaryIO) -> Iterator[tuple[int, Line | BadLine]]:
    """The numbers of the other lines, and what they say or why they cannot be read. Ends after a line that is too long."""
    number = 1
    while body := file.readline(EXPORT_LINE_BYTES_MAX + 1):
        number += 1
        try:
            yield number, read_line(_bounded(body))
        except ValidationError as error:
            yield number, _bad(body, error.message)
            if len(body) > EXPORT_LINE_BYTES_MAX:
                return


def _bounded(body: bytes) -> bytes:
    if len(body) > EXPORT_LINE_BYTES_MAX:
        raise ValidationError(f"the line has more than {EXPORT_LINE_BYTES_MAX} bytes: nothing after it was read")
    return body


def _bad(body: bytes, message: str) -> BadLine:
    """Why a line cannot be read, in plain words."""
    if not message.startswith(_UNREAD):
        return BadLine(message)
    found = decoded(body)
    if found is None:
        return BadLine("the line is not JSON: it was changed or cut off")
    words = in_words(message, found)
    event: Any = found.get("event") if isinstance(found, dict) else None
    if not isinstance(event, dict) or type(event.get("job_id")) is not int or type(event.get("rev")) is not int:
        return BadLine(f"the line cannot be read: {words}")
    return BadLine(f"the event cannot be read: {words}", event["job_id"], event["rev"], shown(event.get("type")))
