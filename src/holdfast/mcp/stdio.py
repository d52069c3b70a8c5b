"""Stdio transport: messages on standard input and output."""

import asyncio
import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import NamedTuple

import mcp_types as types
import msgspec

from holdfast.core import limits
from holdfast.mcp.thread_pool import KeyedThreadPool

CHUNK = 65_536
READ_AHEAD_MAX = 8
"""Lines that are read before anybody has asked for them."""
HEAD_BYTES = 1_024


class InputLine(NamedTuple):
    """A line; of one that is too long, its beginning."""

    text: str
    is_whole: bool


class LineReader:
    """The lines of a descriptor, to be iterated once."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        self._descriptor = descriptor
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[InputLine]:
        loop, room = asyncio.get_running_loop(), threading.Semaphore(READ_AHEAD_MAX)
        lines: asyncio.Queue[InputLine | None] = asyncio.Queue()

        def read_lines() -> None:
            try:
                for line in self._split():
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)
            except RuntimeError:
                return  # the loop is closed: nobody listens any more

        threading.Thread(target=read_lines, name="holdfast-mcp-stdin", daemon=True).start()
        while (line := await lines.get()) is not None:
            room.release()
            yield line

    def _split(self) -> Iterator[InputLine]:
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

    def _line(self, line: bytearray, skipping: bool) -> InputLine:
        is_whole = not skipping and len(line) <= self._bytes_max
        return InputLine((line if is_whole else line[:HEAD_BYTES]).decode(errors="replace"), is_whole)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:
            return b""


log = logging.getLogger("holdfast.mcp")

STDIN, STDOUT, STDERR = 0, 1, 2
_REQUEST = re.compile(r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,15}|"[^"\\]{1,200}")\s*,\s*"method"\s*:')
"""How the requests of most clients begin: whoever waits for an answer can be told, however the rest reads."""


class MessageWriter:
    """A descriptor that is written to by a thread: a client that does not read can keep nobody from ending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writer = KeyedThreadPool("holdfast-mcp-stdout", threads_max=1, per_key_max=1)

    async def write(self, text: str) -> None:
        """Raises OSError where nobody will read it."""
        await self._writer.call(None, partial(_write, self._descriptor, text.encode()))

    async def flush(self) -> None:
        """There is nothing to flush."""


class MessageReader:
    """The messages that can be read, to be iterated once. Others are answered here, as nobody else would. `on_end` is called
    when there are no more."""

    def __init__(self, lines: LineReader, out: MessageWriter, on_end: Callable[[], None]) -> None:
        self._lines = lines
        self._out = out
        self._on_end = on_end

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines:
            wrong = validate_message(line)
            if wrong is None:
                yield line.text
            elif line.text.strip():
                log.warning("a message cannot be read", extra={"error": wrong.message})
                await self._out.write(error_response(line, wrong) + "\n")
        self._on_end()


def validate_message(line: InputLine) -> types.ErrorData | None:
    if not line.is_whole:
        return types.ErrorData(code=types.INVALID_REQUEST, message=f"a message has at most {limits.MCP_BODY_BYTES_MAX} bytes")
    try:
        message = types.jsonrpc_message_adapter.validate_json(line.text, by_name=False)
        if isinstance(message, types.JSONRPCNotification) and "id" in msgspec.json.decode(line.text):
            return types.ErrorData(code=types.INVALID_REQUEST, message="a request's id is a text or an integer")
    except Exception:  # noqa: BLE001 - whatever it is, its sender wants an answer
        return _parse_error(line.text)
    return None


def _parse_error(text: str) -> types.ErrorData:
    try:
        msgspec.json.decode(text)
    except Exception:  # noqa: BLE001 - as above
        return types.ErrorData(code=types.PARSE_ERROR, message="this is no JSON, or nothing that can be read")
    return types.ErrorData(code=types.INVALID_REQUEST, message="this is JSON, but no message of the protocol")


def error_response(line: InputLine, wrong: types.ErrorData) -> str:
    found = _REQUEST.match(line.text)
    answer = types.JSONRPCError(jsonrpc="2.0", id=None if found is None else msgspec.json.decode(found[1]), error=wrong)
    return answer.model_dump_json(by_alias=True, exclude_unset=True)


@contextlib.contextmanager
def reserve_stdout() -> Iterator[int]:
    """Standard output for the protocol alone: within, what others print goes to standard error."""
    sys.stdout.flush()
    own = os.dup(STDOUT)
    with contextlib.suppress(OSError):
        os.dup2(STDERR, STDOUT)
    try:
        yield own
    finally:
        # The duplicate stays open: a write that nobody waits for may still be at it.
        os.dup2(own, STDOUT)


def _write(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]
