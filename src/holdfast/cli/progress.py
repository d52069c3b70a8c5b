"""How far a long command has got, for somebody who watches a terminal."""

import sys
import time

import click

EVERY_SECONDS = 0.5


class Progress:
    """Says on standard error, in one line that is written over, how far it is. Says nothing where nobody watches."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_watched = sys.stderr.isatty()
        self._due_at = time.monotonic() + EVERY_SECONDS
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if not self._is_watched or time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + EVERY_SECONDS
        self._shown = True
        part = "" if not total else f" of {total:,}"
        click.echo(f"\r\x1b[K{self._what}: {done:,}{part}", err=True, nl=False)

    def over(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
