"""Looks at the ledger beside the screen: a ledger that answers slowly, or not at all, does not hold up a key."""

import threading
import time
from typing import TYPE_CHECKING

from holdfast.cli.board.picture import Looking, Picture
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

SHARE_MAX = 0.2
"""Of its time: where looking takes long, it is done less often."""


class Watcher:
    """`picture` is the newest one; `trouble` says why there is no newer one. The thread that reads them writes neither."""

    def __init__(self, ledger: "Ledger", every_s: float) -> None:
        self._looking = Looking(ledger)
        self._every_s = every_s
        self._again = threading.Event()
        self._over = False
        self.picture: Picture | None = None
        self.trouble = ""
        self.looks = 0
        """How often it has looked: whoever draws can tell whether there is something new."""
        self._thread = threading.Thread(target=self._run, name="holdfast-top", daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._again.set()
        self._thread.join(timeout=2)

    def look_again(self) -> None:
        """At once: something was changed from here."""
        self._again.set()

    def _run(self) -> None:
        while not self._over:
            began = time.monotonic()
            try:
                self.picture, self.trouble = self._looking.look(), ""
            except HoldfastError as error:
                self.trouble = f"{error.code}: {error.message}"
            self.looks += 1
            took_s = time.monotonic() - began
            self._again.wait(max(self._every_s, took_s / SHARE_MAX))
            self._again.clear()
