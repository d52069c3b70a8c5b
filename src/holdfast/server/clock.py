"""The ledger's time, for the header Holdfast-Now of every answer."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from holdfast.errors import HoldfastError

MEASURED_SECONDS = 10.0
"""How long a measured offset is used."""


class LedgerClock:
    """This machine's clock, plus its offset from the ledger's. Only the event loop's thread uses it.

    The offset is measured when the server starts, and again for an answer if it is older than 10 s. That answer does not wait:
    the next ones have the new offset.
    """

    def __init__(self, read_now: Callable[[], datetime], call: Callable[[Callable[[], datetime]], Awaitable[datetime]]) -> None:
        self._read_now = read_now
        self._call = call
        self._offset_s = 0.0
        self._measured_at = float("-inf")
        self._measuring: asyncio.Task[None] | None = None

    def header(self) -> bytes:
        """Return the ledger's time as RFC 3339 with microseconds, in UTC."""
        if time.monotonic() - self._measured_at > MEASURED_SECONDS and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.ensure_future(self.measure())
        now = datetime.fromtimestamp(time.time() + self._offset_s, UTC)
        return b"%sZ" % now.isoformat(timespec="microseconds")[:-6].encode()

    async def measure(self) -> None:
        """Read the ledger's time once. If it cannot be read, the offset stays as it is until the next try."""
        self._measured_at = time.monotonic()
        before = time.time()
        with contextlib.suppress(HoldfastError):
            found = await self._call(self._read_now)
            self._offset_s = found.timestamp() - (before + time.time()) / 2
