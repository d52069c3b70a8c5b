"""What signals do to a server: the first ends it in order, a second one at once. An echo of the first is not a second."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from holdfast.services.echoes import ECHO_SECONDS

log = logging.getLogger("holdfast.mcp")

ENDING = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 130


class Ending:
    """Within, SIGTERM and SIGINT are heard, whatever the main thread waits for."""

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._begin: Callable[[int], None] = lambda number: None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._hear) for number in ENDING}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self, stop: Callable[[], None]) -> None:
        """From here on the first signal has the running loop `stop`; at once, if it has come already."""
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            log.info("ending", extra={"signal": signal.Signals(number).name})
            stop()

        def begin(number: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
                loop.call_soon_threadsafe(end, number)

        self._begin = begin
        if self._told_at is not None:
            stop()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        # Not a word of it in the log: the signal may have come in the middle of a line.
        if self._told_at is None:
            self._told_at = time.monotonic()
            self._begin(number)
        elif time.monotonic() - self._told_at > ECHO_SECONDS:
            os._exit(INTERRUPTED)
