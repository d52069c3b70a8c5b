"""Totals and history as a service: count events by minute and hour, and delete old counts.

One process of a fleet does it at a time. The counts and the position up to which they go are written in one transaction. So a
process that is killed leaves nothing half counted.
"""

from holdfast.keeping.duty import TTL_SECONDS, Duty
from holdfast.keeping.service import Service
from holdfast.ledger import Ledger
from holdfast.ledger.verbs.services import HISTORY_DUTY

EVERY_SECONDS, BUSY_EVERY_SECONDS = 1.0, 0.05
"""The interval between ticks, and the interval if the last one has left something."""
TICK_SECONDS = 0.5
"""After so long no further page of a tick begins."""
PAGE_EVENTS = 10_000
"""Events of one page. They are read without a lock. What is written does not depend on their number."""
DELETE_EVERY_SECONDS = 60.0
DELETE_ROWS = 5_000


class HistoryService(Service):
    """Count the ledger's events while this process has the duty."""

    name = "history"
    duty: Duty

    def __init__(self, ledger: Ledger, holder: str) -> None:
        self._writer = ledger.history_writer
        self.duty = Duty(ledger, HISTORY_DUTY, holder, TTL_SECONDS, self._writer.monotonic)
        self._deleted_at = float("-inf")
        self.every_s = EVERY_SECONDS

    def tick(self) -> int:
        """Count new events and return how many pages that were. Do nothing while another process has the duty."""
        self.every_s = EVERY_SECONDS
        if not self.duty.keep():
            return 0
        end = self._writer.monotonic() + TICK_SECONDS
        pages = 0
        more = True
        while more and (pages == 0 or self._writer.monotonic() < end):
            more = self._writer.advance(PAGE_EVENTS)
            pages += 1
        if more:
            self.every_s = BUSY_EVERY_SECONDS
        else:
            self._delete_old()
        return pages

    def _delete_old(self) -> None:
        """Delete old counts, if it is time. If there are more than one step may delete, the next tick goes on."""
        due = self._writer.monotonic() - self._deleted_at >= DELETE_EVERY_SECONDS
        if due and self._writer.delete_old(DELETE_ROWS) < DELETE_ROWS:
            self._deleted_at = self._writer.monotonic()
