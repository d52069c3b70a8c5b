"""Plain text for people: colour on a terminal, unless NO_COLOR is set, and elsewhere where FORCE_COLOR is.

What comes from a ledger was written by anybody: everything that is printed here is made visible first.
"""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from holdfast.cli.columns import padded, shortened, width
from holdfast.telemetry.lines import visible

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
            text = visible(text)
            click.echo(click.style(text, **style) if style else text, color=self._colour)  # type: ignore[arg-type]

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, bold=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Columns as wide as they need to be; numbers to the right."""
        texts = [[shortened(visible(str(cell)), CELL_COLUMNS_MAX) for cell in row] for row in rows]
        widths = [max(map(width, column)) for column in zip(heads, *texts, strict=True)]
        right = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)] or [False] * len(heads)
        self.line("  " + _joined(heads, widths, right), dim=True)
        for row in texts:
            self.line("  " + _joined(row, widths, right))

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
        click.secho(visible(text), err=True, dim=True, color=wants_colour(sys.stderr))

    def fail(self, reason: str) -> int:
        """The exit code of what failed."""
        click.secho(f"Failed: {visible(reason)}", err=True, fg="red", color=wants_colour(sys.stderr))
        return 1


def _joined(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = [padded(cell, w, to_right=is_right) for cell, w, is_right in zip(cells, widths, right, strict=True)]
    return "  ".join(fitted).rstrip()
