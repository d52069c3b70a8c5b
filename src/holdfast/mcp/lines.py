"""Standard input, line by line, in a way that can be given up: a read that blocks would outlive every signal."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator

log = logging.getLogger("holdfast.mcp")

CHUNK = 65_536
AHEAD_MAX = 8
"""Lines that are read before anybody has asked for them."""


class Lines:
    """The lines of a descriptor, to be iterated once. One that is too long is passed over, and is an empty line instead."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        self._descriptor = descriptor
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[str]:
        loop, room = asyncio.get_running_loop(), threading.Semaphore(AHEAD_MAX)
        lines: asyncio.Queue[str | None] = asyncio.Queue()

        def pass_on() -> None:
            try:
                for line in self._split():
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)
            except RuntimeError:
                return  # the loop is closed: nobody listens any more

        threading.Thread(target=pass_on, name="holdfast-mcp-stdin", daemon=True).start()
        while (line := await lines.get()) is not None:
            room.release()
            yield line

    def _split(self) -> Iterator[str]:
        held, skipping = bytearray(), False
        while chunk := self._read():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                yield self._line(held + part, skipping)
                held.clear()
                skipping = False
            held += rest
            if len(held) > self._bytes_max:
                held.clear()
                skipping = True
        if held:
            yield self._line(held, skipping)

    def _line(self, line: bytearray, skipping: bool) -> str:
        if skipping or len(line) > self._bytes_max:
            log.warning("a message is too long", extra={"bytes_max": self._bytes_max})
            return ""
        return line.decode(errors="replace")

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:
            return b""
