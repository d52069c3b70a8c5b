"""A worker's presence: its entry in the ledger, and heartbeats to its supervisor."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.keeping import supervised
from holdfast.keeping.service import Service
from holdfast.ledger import Ledger


class PresenceService(Service):
    """Renew a worker's entry in the ledger. `describe` returns what the entry contains."""

    name = "presence"
    every_s = 15.0

    def __init__(self, ledger: Ledger, worker: str, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._ledger = ledger
        self._worker = worker
        self._describe = describe

    def tick(self) -> None:
        self._ledger.sign_in(self._worker, body=self._describe())

    def close(self) -> None:
        self._ledger.sign_out(self._worker)


class SupervisorHeartbeat(Service):
    """Send heartbeats to the supervisor of this process."""

    name = "supervised"

    def __init__(self) -> None:
        self.every_s = supervised.every_s()

    def tick(self) -> None:
        supervised.beat(stage="working")
