"""What commands print: text and tables for people, one line of JSON for programs, and a progress line.

Text from a ledger may come from anybody, so control characters are made visible before anything is printed. Colour is used on a
terminal unless NO_COLOR is set, and elsewhere if FORCE_COLOR is set.
"""

import json
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TextIO

import click
import msgspec

from holdfast.errors import HoldfastError, error_fields
from holdfast.telemetry.formatters import printable

_JAMO = range(0x1160, 0x1200)
"""Vowels and finals of Hangul, which are drawn into the syllable before them."""


def display_width(text: str) -> int:
    """Of a visible text: most characters take one column, those of East Asia and emoji two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or ord(character) in _JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """As much of it as fits; half a wide character does not."""
    if display_width(text) <= columns:
        return text
    taken = 0
    for place, character in enumerate(text):
        taken += _character_width(character)
        if taken > columns:
            return text[:place]
    return text


def shorten(text: str, columns: int) -> str:
    """The same, with a mark where something is left out."""
    return text if display_width(text) <= columns else f"{clip(text, columns - 1)}…"


def pad(text: str, columns: int, *, to_right: bool = False) -> str:
    blanks = " " * (columns - display_width(text))
    return blanks + text if to_right else text + blanks


def wrap(text: str, columns: int) -> list[str]:
    """In lines that fit. Where even one character is too wide, it stands alone."""
    lines: list[str] = []
    while text:
        part = clip(text, columns) or text[0]
        lines.append(part)
        text = text[len(part) :]
    return lines or [""]


CELL_COLUMNS_MAX = 200


def wants_colour(stream: TextIO) -> bool:
    """NO_COLOR, which `--no-color` sets, outweighs FORCE_COLOR. An empty variable says nothing."""
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
        """Columns as wide as they need to be; numbers to the right."""
        texts = [[shorten(printable(str(cell)), CELL_COLUMNS_MAX) for cell in row] for row in rows]
        widths = [max(map(display_width, column)) for column in zip(heads, *texts, strict=True)]
        right = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)] or [False] * len(heads)
        self.line("  " + _join_cells(heads, widths, right), dim=True)
        for row in texts:
            self.line("  " + _join_cells(row, widths, right))

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Names and values, one pair a line."""
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            self.line(f"  {name.ljust(width)}  {'–' if value is None else value}")

    def block(self, text: str, *, indent: str = "  ") -> None:
        """Text of several lines, indented."""
        for line in text.splitlines():
            self.line(f"{indent}{line}")

    def remark(self, text: str) -> None:
        """Beside the answer, not in it."""
        click.secho(printable(text), err=True, dim=True, color=wants_colour(sys.stderr))

    def fail(self, reason: str, action: str = "") -> int:
        """Why, and in a second line what to do. The exit code of what failed."""
        click.secho(f"Failed: {printable(reason)}", err=True, fg="red", color=wants_colour(sys.stderr))
        if action:
            click.secho(f"Try: {printable(action)}", err=True, color=wants_colour(sys.stderr))
        return 1


def _join_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = [pad(cell, w, to_right=is_right) for cell, w, is_right in zip(cells, widths, right, strict=True)]
    return "  ".join(fitted).rstrip()


SCHEMA_VERSION = "v1"
JSON_REQUESTED = "holdfast.json"
"""Under which name a command's context says that `--json` was asked for."""
REQUEST_ID = "holdfast.request_id"
"""Under which name a command's context has the request id that was typed or drawn."""


HINTS = {
    "agent": "Add --agent NAME, or export HOLDFAST_AGENT=NAME.",
}
"""What to do where an option is missing, by the option's name."""


class CommandError(Exception):
    """A command came to nothing, for a reason that is not a ledger's refusal. `code` never changes once released."""

    def __init__(self, code: str, message: str, *, action: str = "", exit_code: int = 1, **context: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action
        self.exit_code = exit_code
        self.is_told = False
        """Whether people were told already, in the answer itself."""
        self.context = context
        self.request_id: str | None = None
        """Of the command, where it has one."""


def usage_error(message: str, *, action: str = "See --help.") -> CommandError:
    """What was typed cannot be meant."""
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
    """ASCII alone, so that nothing in it can end the line or speak to a terminal; DEL is the one that json leaves."""
    plain = msgspec.to_builtins(whole, enc_hook=str)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f")


EVERY_SECONDS = 0.5


def is_watched() -> bool:
    """Standard error is a terminal that can be written over, and nobody has asked for one line of JSON alone."""
    context = click.get_current_context(silent=True)
    as_json = context is not None and context.meta.get(JSON_REQUESTED, False)
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not as_json


class ProgressLine:
    """Says on standard error, in one line that is written over, how far it is. Says nothing where nobody watches.

    Within it the line may be there; afterwards it is gone.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._is_watched = not quiet and is_watched()
        self._due_at = time.monotonic() + EVERY_SECONDS
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._is_watched and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + EVERY_SECONDS
            self.say(f"{done:,}" if not total else f"{done:,} of {total:,}")

    def say(self, how_far: str) -> None:
        self._shown = True
        click.echo(f"\r\x1b[K{self._what}: {how_far}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


@contextmanager
def show_elapsed(what: str) -> Iterator[None]:
    """Within, it is said for how long this has been going on: for what cannot tell how far it is."""
    if not is_watched():
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(EVERY_SECONDS):
            progress.say(f"{time.monotonic() - began:.0f} s")

    with ProgressLine(what) as progress:
        teller = threading.Thread(target=tell, name="holdfast-progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
