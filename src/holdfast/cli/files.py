"""Read JSON from arguments, files and standard input; write output files atomically."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from holdfast.cli.exit_codes import OutputClosed
from holdfast.cli.output import CommandError, usage_error
from holdfast.core.limits import TYPED_BYTES_MAX, TYPED_LINES_BYTES_MAX
from holdfast.errors import HoldfastError, ValidationError
from holdfast.regular_file import read_regular


def json_object(option: str) -> Callable[[str], dict[str, Any]]:
    """Return a reader for this option's value: a JSON object in the argument itself, in a @FILE, or on standard input for -."""

    def read(value: str) -> dict[str, Any]:
        try:
            return parse_object(read_argument(value))
        except HoldfastError as error:
            raise click.BadParameter(error.message + _json_hint(option, value)) from None

    return read


def _json_hint(option: str, value: str) -> str:
    """Return how to write `name=x`, the form that other tools use, as JSON; an empty text for other values."""
    name, equals, text = value.partition("=")
    if not equals or not name.isidentifier() or len(value) > HINT_CHARACTERS_MAX:
        return ""
    written = json.dumps({name: int(text) if text.isdecimal() and text.isascii() else text}, ensure_ascii=False)
    return f". Write {option} {shlex.quote(written)}"


HINT_CHARACTERS_MAX = 80


def json_lines(file: str, limit: int) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; - is standard input. Skip empty lines. Raise if there are more than `limit`."""
    found: list[dict[str, Any]] = []
    left, number = TYPED_LINES_BYTES_MAX, 0
    try:
        with click.open_file(file, "rb") as lines:
            while line := lines.readline(TYPED_BYTES_MAX + 1):
                number, left = number + 1, left - len(line)
                if left < 0:
                    raise usage_error(f"{file} has more than {TYPED_LINES_BYTES_MAX:,} bytes", action="Split it.")
                if not line.strip():
                    continue
                if len(found) == limit:
                    raise usage_error(f"{file} has more than {limit:,} lines", action="Split it: each part is one transaction.")
                found.append(_parse_line(line, f"{file}, line {number}"))
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}") from None
    return found


def _parse_line(text: bytes, where: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except HoldfastError as error:
        raise usage_error(f"{where}: {error.message}", action="Correct it: nothing was done.") from None


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`. Raise if a key occurs twice."""
    from holdfast.core import strict_json

    found = strict_json.parse("it", body, TYPED_BYTES_MAX)
    if not isinstance(found, dict):
        raise ValidationError("it is not a JSON object")
    return found


def read_argument(value: str) -> bytes:
    """Return the argument itself, the contents of a @FILE, which may be a pipe, or standard input for -."""
    try:
        if value == "-":
            return sys.stdin.buffer.read(TYPED_BYTES_MAX + 1)
        return read_regular(value[1:], TYPED_BYTES_MAX, pipes=True) if value.startswith("@") else os.fsencode(value)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a valid file name"
        raise ValidationError(f"{value[1:]!r:.80} cannot be read: {reason}") from None


Write = Callable[[bytes], object]


@contextmanager
def open_output(out: Path | None) -> Iterator[Write]:
    """Yield a function that writes to the file, or to standard output if `out` is None.

    The data goes to a temporary file, which is renamed when it is complete.
    """
    if out is None:
        yield _writer(sys.stdout.buffer, "standard output")
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield _writer(file, str(out))
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _write_error(str(out), error) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _writer(stream: BinaryIO, name: str) -> Write:
    """Return a function that writes to the stream.

    It runs inside a transaction, so it turns its own errors into others that are not taken for errors of the store.
    """

    def write(line: bytes) -> None:
        try:
            stream.write(line)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except OSError as error:
            raise _write_error(name, error) from None

    return write


def _write_error(name: str, error: OSError) -> CommandError:
    return usage_error(f"{name} cannot be written: {error.strerror}", action="Name another file.")
