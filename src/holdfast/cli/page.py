"""Plain text for people: colour only on a terminal, and not where NO_COLOR is set."""

import os
import sys
from collections.abc import Sequence

import click


class Page:
    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "", **style: object) -> None:
        click.echo(click.style(text, **style) if style else text, color=self._colour)  # type: ignore[arg-type]

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, bold=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Columns as wide as they need to be; numbers to the right."""
        texts = [[str(cell) for cell in row] for row in rows]
        widths = [max(len(text) for text in column) for column in zip(heads, *texts, strict=True)]
        right = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
        self.line("  " + _joined(heads, widths, right), dim=True)
        for row in texts:
            self.line("  " + _joined(row, widths, right))

    def fail(self, reason: str) -> int:
        """The exit code of what failed."""
        self.line()
        click.secho(f"Failed: {reason}", err=True, fg="red", color=self._colour)
        return 1


def _joined(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [cell.rjust(w) if to_right else cell.ljust(w) for cell, w, to_right in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()
