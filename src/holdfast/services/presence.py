"""Being seen: a worker signs in, says from time to time that it is still there, and signs out."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.ledger import Ledger


class Presence:
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
