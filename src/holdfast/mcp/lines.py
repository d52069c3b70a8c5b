"""Standard input, line by line, in a way that can be given up: a read that blocks would outlive every signal."""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator

from mcp_types import JSONRPCError

from holdfast.mcp.garbled import HEAD_BYTES, garbled, too_long

log = logging.getLogger("holdfast.mcp")

CHUNK = 65_536
AHEAD_MAX = 8
"""Lines that are read before anybody has asked for them."""


class Lines:
    """The lines of a descriptor that have something in them, to be iterated once.

    One that is no message, or too long, is an empty line instead, and `refusals` has one more.
    """

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        self._descriptor = descriptor
        self._bytes_max = bytes_max
        self.refusals: deque[JSONRPCError] = deque()

    async def __aiter__(self) -> AsyncIterator[str]:
        loop, room = asyncio.get_running_loop(), threading.Semaphore(AHEAD_MAX)
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def pass_on() -> None:
            try:
                for line in filter(bytes.strip, self._split()):
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)
            except RuntimeError:
                return  # the loop is closed: nobody listens any more

        threading.Thread(target=pass_on, name="holdfast-mcp-stdin", daemon=True).start()
        while (line := await lines.get()) is not None:
            room.release()
            yield self._checked(line)

    def _checked(self, line: bytes) -> str:
        text = line.decode(errors="replace")
        if len(line) > self._bytes_max:
            log.warning("a message is too long", extra={"bytes_max": self._bytes_max})
            refused: JSONRPCError | None = too_long(text[:HEAD_BYTES], self._bytes_max)
        else:
            refused = garbled(text)
        if refused is None:
            return text
        self.refusals.append(refused)
        return ""

    def _split(self) -> Iterator[bytes]:
        """Without their ends. Of one that is too long, no more is kept than shows that it is."""
        held = bytearray()
        while chunk := self._read():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                held += part[: self._bytes_max + 1 - len(held)]
                yield bytes(held)
                held.clear()
            held += rest[: self._bytes_max + 1 - len(held)]
        yield bytes(held)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:
            return b""
