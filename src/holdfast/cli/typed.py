"""Larger things that people type: JSON, from the command line, a file or standard input."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.envelope import misuse
from holdfast.core.limits import TYPED_BYTES_MAX, TYPED_LINES_BYTES_MAX
from holdfast.errors import HoldfastError, ValidationError
from holdfast.plainfile import read_plain


def json_object(option: str) -> Callable[[str], dict[str, Any]]:
    """Reads what is given to this option: a JSON object as it is typed, from a @FILE, or from standard input as -."""

    def read(value: str) -> dict[str, Any]:
        try:
            return object_of(typed_bytes(value))
        except HoldfastError as error:
            raise click.BadParameter(error.message + _hint(option, value)) from None

    return read


def _hint(option: str, value: str) -> str:
    """For `name=x`, which is how other tools take arguments."""
    name, equals, text = value.partition("=")
    if not equals or not name.isidentifier() or len(value) > HINT_CHARACTERS_MAX:
        return ""
    written = json.dumps({name: int(text) if text.isdecimal() and text.isascii() else text}, ensure_ascii=False)
    return f". Write {option} {shlex.quote(written)}"


HINT_CHARACTERS_MAX = 80


def json_lines(file: str, limit: int) -> list[dict[str, Any]]:
    """A file with one JSON object a line, - for standard input. Empty lines do not count; more than `limit` are not read."""
    found: list[dict[str, Any]] = []
    left, number = TYPED_LINES_BYTES_MAX, 0
    try:
        with click.open_file(file, "rb") as lines:
            while line := lines.readline(TYPED_BYTES_MAX + 1):
                number, left = number + 1, left - len(line)
                if left < 0:
                    raise misuse(f"{file} has more than {TYPED_LINES_BYTES_MAX:,} bytes", action="Split it.")
                if not line.strip():
                    continue
                if len(found) == limit:
                    raise misuse(f"{file} has more than {limit:,} lines", action="Split it: each part is one transaction.")
                found.append(_line(line, f"{file}, line {number}"))
    except OSError as error:
        raise misuse(f"{file} cannot be read: {error.strerror}") from None
    return found


def _line(text: bytes, where: str) -> dict[str, Any]:
    try:
        return object_of(text)
    except HoldfastError as error:
        raise misuse(f"{where}: {error.message}", action="Correct it: nothing was done.") from None


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. One that names a key twice is refused, as everywhere else."""
    from holdfast.core import strictjson

    found = strictjson.parse("it", body, TYPED_BYTES_MAX)
    if not isinstance(found, dict):
        raise ValidationError("it is not a JSON object")
    return found


def typed_bytes(value: str) -> bytes:
    """What was typed; or the contents of a @FILE, which may be a pipe; or standard input for -."""
    try:
        if value == "-":
            return sys.stdin.buffer.read(TYPED_BYTES_MAX + 1)
        return read_plain(value[1:], TYPED_BYTES_MAX, pipes=True) if value.startswith("@") else os.fsencode(value)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be one"
        raise ValidationError(f"{value[1:]!r:.80} cannot be read: {reason}") from None
