"""Output of commands: text and tables, one line of JSON, a progress line, and files that are written atomically.

Text from a ledger is not trusted, so control characters are escaped before it is printed. Colour is used on a terminal unless
NO_COLOR is set, and elsewhere if FORCE_COLOR is set.
"""

import json
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self, TextIO

import click
import msgspec

from holdfast.errors import HoldfastError, error_fields
from holdfast.telemetry.formatters import printable

_JAMO = range(0x1160, 0x1200)
"""Vowels and finals of Hangul, which join the syllable before them and take no column."""


def display_width(text: str) -> int:
    """Return the columns of a printable text. East Asian wide characters and emoji take two, combining characters none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or ord(character) in _JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """Return as much of the text as fits. A wide character is never cut in half."""
    if display_width(text) <= columns:
        return text
    taken = 0
    for place, character in enumerate(text):
        taken += _character_width(character)
        if taken > columns:
            return text[:place]
    return text


def shorten(text: str, columns: int) -> str:
    """Return the text if it fits, else as much of it as fits with an ellipsis."""
    return text if display_width(text) <= columns else f"{clip(text, columns - 1)}…"


def pad(text: str, columns: int, *, to_right: bool = False) -> str:
    blanks = " " * (columns - display_width(text))
    return blanks + text if to_right else text + blanks


CELL_COLUMNS_MAX = 200


def wants_colour(stream: TextIO) -> bool:
    """Return whether to use colour. NO_COLOR, which `--no-color` sets, overrides FORCE_COLOR. Empty variables are ignored."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


class Page:
    def __init__(self, *, quiet: bool = False) -> None:
        self._colour = wants_colour(sys.stdout)
        self._quiet = quiet

    def line(self, text: str = "", **style: object) -> None:
        if not self._quiet:
            text = printable(text)
            click.echo(click.style(text, **style) if style else text, color=self._colour)  # type: ignore[arg-type]

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, bold=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table. Columns are as wide as their contents, and numbers are right-aligned."""
        texts = [[shorten(printable(str(cell)), CELL_COLUMNS_MAX) for cell in row] for row in rows]
        widths = [max(map(display_width, column)) for column in zip(heads, *texts, strict=True)]
        right = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)] or [False] * len(heads)
        self.line("  " + _join_cells(heads, widths, right), dim=True)
        for row in texts:
            self.line("  " + _join_cells(row, widths, right))

    def listing(self, heads: Sequence[str], rows: Sequence[Sequence[object]], empty: str, *, more: object = None) -> None:
        """Print a table, or the text `empty` if there are no rows. `more` is the `--after` of the next page."""
        if rows:
            self.table(heads, rows)
        else:
            self.line(empty)
        if more is not None:
            self.line(f"  There may be more: --after {more}", dim=True)

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Print names and values, one pair per line."""
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            self.line(f"  {name.ljust(width)}  {'–' if value is None else value}")

    def block(self, text: str, *, indent: str = "  ") -> None:
        """Print text of several lines, indented."""
        for line in text.splitlines():
            self.line(f"{indent}{line}")

    def remark(self, text: str) -> None:
        """Print a remark to standard error."""
        click.secho(printable(text), err=True, dim=True, color=wants_colour(sys.stderr))

    def fail(self, reason: str, action: str = "") -> int:
        """Print the reason of a failure and, in a second line, what to do. Return the exit code."""
        click.secho(f"Failed: {printable(reason)}", err=True, fg="red", color=wants_colour(sys.stderr))
        if action:
            click.secho(f"Try: {printable(action)}", err=True, color=wants_colour(sys.stderr))
        return 1


def _join_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = [pad(cell, w, to_right=is_right) for cell, w, is_right in zip(cells, widths, right, strict=True)]
    return "  ".join(fitted).rstrip()


SCHEMA_VERSION = "v1"
JSON_REQUESTED = "holdfast.json"
"""The key in a context's `meta` of whether `--json` was given."""
REQUEST_ID = "holdfast.request_id"
"""The key in a context's `meta` of the request id, typed or generated."""


HINTS = {
    "agent": "Add --agent NAME, or export HOLDFAST_AGENT=NAME.",
}
"""What to do if an option is missing, by the option's name."""


class CommandError(Exception):
    """A command failed for a reason other than a ledger's error. A released `code` never changes."""

    def __init__(self, code: str, message: str, *, action: str = "", exit_code: int = 1, **context: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action
        self.exit_code = exit_code
        self.is_printed = False
        """Whether the text answer contains the message already."""
        self.context = context
        self.request_id: str | None = None
        """The request id of the command, if it has one."""


def usage_error(message: str, *, action: str = "See --help.") -> CommandError:
    """Return the error for invalid arguments."""
    return CommandError("usage", message, action=action, exit_code=2)


def success_line(data: Any, request_id: str | None = None) -> str:
    return _encode_line({"schema_version": SCHEMA_VERSION, "success": True, "data": data, **_request_id_field(request_id)})


def failure_line(error: CommandError | HoldfastError) -> str:
    return _encode_line(
        {"schema_version": SCHEMA_VERSION, "success": False, **error_fields(error), **_request_id_field(error.request_id)}
    )


def _request_id_field(request_id: str | None) -> dict[str, str]:
    return {} if request_id is None else {"request_id": str(request_id)}


def _encode_line(whole: dict[str, Any]) -> str:
    """Encode as ASCII, so that no text can end the line or control a terminal. json does not escape DEL, so escape it here."""
    plain = msgspec.to_builtins(whole, enc_hook=str)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f")


EVERY_SECONDS = 0.5


def is_watched() -> bool:
    """Return whether a progress line may be shown: standard error is a capable terminal, and `--json` was not given."""
    context = click.get_current_context(silent=True)
    as_json = context is not None and context.meta.get(JSON_REQUESTED, False)
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not as_json


class ProgressLine:
    """A context manager that shows progress in one line on standard error, and erases the line at the end.

    It prints nothing if standard error is not a terminal or `--json` was given.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._is_watched = not quiet and is_watched()
        self._due_at = time.monotonic() + EVERY_SECONDS
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._is_watched and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + EVERY_SECONDS
            self.show(f"{done:,}" if not total else f"{done:,} of {total:,}")

    def show(self, progress: str) -> None:
        self._shown = True
        click.echo(f"\r\x1b[K{self._what}: {progress}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


@contextmanager
def show_elapsed(what: str) -> Iterator[None]:
    """Show how long the block has been running. Use it for work whose progress is unknown."""
    if not is_watched():
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def show_seconds() -> None:
        while not over.wait(EVERY_SECONDS):
            progress.show(f"{time.monotonic() - began:.0f} s")

    with ProgressLine(what) as progress:
        thread = threading.Thread(target=show_seconds, name="holdfast-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class OutputClosed(Exception):
    """The reader of the output is gone."""


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
