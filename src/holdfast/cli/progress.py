"""How far a long command has got, for somebody who watches a terminal."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import click

from holdfast.cli.envelope import JSON_ASKED

EVERY_SECONDS = 0.5


def is_watched() -> bool:
    """Standard error is a terminal that can be written over, and nobody has asked for one line of JSON alone."""
    context = click.get_current_context(silent=True)
    as_json = context is not None and context.meta.get(JSON_ASKED, False)
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not as_json


class Progress:
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
def meanwhile(what: str) -> Iterator[None]:
    """Within, it is said for how long this has been going on: for what cannot tell how far it is."""
    if not is_watched():
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(EVERY_SECONDS):
            progress.say(f"{time.monotonic() - began:.0f} s")

    with Progress(what) as progress:
        teller = threading.Thread(target=tell, name="holdfast-progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
