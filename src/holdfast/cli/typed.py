"""Larger things that people type: JSON, from the command line, a file or standard input."""

import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.envelope import misuse
from holdfast.core.limits import NESTING_MAX

TOO_DEEP = f"it is nested deeper than {NESTING_MAX}"
"""Said here of what is too deep to be read at all; the ledger says the same of the rest."""


def json_object(value: str) -> dict[str, Any]:
    """A JSON object as it is typed, from a @FILE, or from standard input as -."""
    import msgspec

    try:
        return msgspec.json.decode(_text(value), type=dict[str, Any])
    except OSError as error:
        raise click.BadParameter(f"{value[1:]!r:.80} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise click.BadParameter(f"it is not a JSON object: {error}") from None
    except RecursionError:
        raise click.BadParameter(TOO_DEEP) from None


def json_lines(file: str, limit: int) -> list[dict[str, Any]]:
    """A file with one JSON object a line, - for standard input. Empty lines do not count; more than `limit` are not read."""
    found: list[dict[str, Any]] = []
    try:
        with click.open_file(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                if len(found) == limit:
                    raise misuse(f"{file} has more than {limit:,} lines", action="Split it: each part is one transaction.")
                found.append(_object(line, f"{file}, line {number}"))
    except OSError as error:
        raise misuse(f"{file} cannot be read: {error.strerror}") from None
    return found


def _object(text: bytes, where: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise misuse(f"{where}: it is not a JSON object: {error}", action="Correct it: nothing was done.") from None
    except RecursionError:
        raise misuse(f"{where}: {TOO_DEEP}", action="Correct it: nothing was done.") from None


def _text(value: str) -> bytes:
    if value == "-":
        return sys.stdin.buffer.read()
    return Path(value[1:]).read_bytes() if value.startswith("@") else value.encode()
