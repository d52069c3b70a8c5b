"""Reading a file that anybody may have written: line by line, no line longer than it may be."""

from collections.abc import Iterator
from typing import BinaryIO

from holdfast.core.limits import EXPORT_LINE_BYTES_MAX
from holdfast.core.proof.exported import Header, Line, read_header, read_line
from holdfast.errors import ValidationError

_GZIP = b"\x1f\x8b"


def header_of(file: BinaryIO) -> Header:
    """The first line."""
    body = file.readline(EXPORT_LINE_BYTES_MAX + 1)
    if not body:
        raise ValidationError("the file is empty")
    if body.startswith(_GZIP):
        raise ValidationError("the file is compressed: unpack it first")
    return read_header(_bounded(body))


def lines_of(file: BinaryIO) -> Iterator[tuple[int, Line | ValidationError]]:
    """The numbers of the other lines, and what they say or why they cannot be read. Ends after a line that is too long."""
    number = 1
    while body := file.readline(EXPORT_LINE_BYTES_MAX + 1):
        number += 1
        try:
            yield number, read_line(_bounded(body))
        except ValidationError as error:
            yield number, error
            if len(body) > EXPORT_LINE_BYTES_MAX:
                return


def _bounded(body: bytes) -> bytes:
    if len(body) > EXPORT_LINE_BYTES_MAX:
        raise ValidationError(f"the line has more than {EXPORT_LINE_BYTES_MAX} bytes: nothing after it was read")
    return body
