"""Standard input, line by line, in a way that can be given up: a read that blocks would outlive every signal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

CHUNK = 65_536
AHEAD_MAX = 8
"""Lines that are read before anybody has asked for them."""
HEAD_BYTES = 1_024


class Line(NamedTuple):
    """A line; of one that is too long, its beginning."""

    text: str
    is_whole: bool


class Lines:
    """The lines of a descriptor, to be iterated once."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        self._descriptor = descriptor
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[Line]:
        loop, room = asyncio.get_running_loop(), threading.Semaphore(AHEAD_MAX)
        lines: asyncio.Queue[Line | None] = asyncio.Queue()

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

    def _split(self) -> Iterator[Line]:
        held, skipping = bytearray(), False
        while chunk := self._read():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                yield self._line(held if skipping else held + part, skipping)
                held.clear()
                skipping = False
            if not skipping:
                held += rest
            if len(held) > self._bytes_max:
                del held[HEAD_BYTES:]
                skipping = True
        if held:
            yield self._line(held, skipping)

    def _line(self, line: bytearray, skipping: bool) -> Line:
        is_whole = not skipping and len(line) <= self._bytes_max
        return Line((line if is_whole else line[:HEAD_BYTES]).decode(errors="replace"), is_whole)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:
            return b""
