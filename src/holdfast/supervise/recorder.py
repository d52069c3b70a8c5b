"""Keeping a run while it goes on: in a thread of its own, so that a slow ledger never holds up whoever watches the command."""

import logging
import threading
from collections.abc import Callable

from holdfast.errors import Conflict, HoldfastError
from holdfast.supervise.run import Run, Snapshot

log = logging.getLogger("holdfast.supervise")


class Recorder:
    """Keeps the newest snapshot it was told of."""

    def __init__(self, run: Run, ring: Callable[[], None]) -> None:
        self._run = run
        self._ring = ring
        self._news = threading.Event()
        self._newest: Snapshot | None = None
        self._closing = False
        self.superseded = False
        """Another supervisor has the run."""
        self._thread = threading.Thread(target=self._work, name="holdfast-record", daemon=True)
        self._thread.start()

    def tell(self, snapshot: Snapshot) -> None:
        self._newest = snapshot
        self._news.set()

    def _work(self) -> None:
        while self._news.wait() and not self._closing:
            self._news.clear()
            try:
                if self._newest is not None:
                    self._run.keep(self._newest)
            except Conflict:
                self.superseded = True
                self._ring()
            except HoldfastError as error:
                log.warning("the run could not be kept", extra={"run": self._run.name, "error": error.code})

    def close(self) -> None:
        self._closing = True
        self._news.set()
        self._thread.join()
