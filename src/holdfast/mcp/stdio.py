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
"""How many lines are read ahead of their consumer."""
HEAD_BYTES = 1_024


class InputLine(NamedTuple):
    """A line of input. Of a line that is too long, `text` has the beginning."""

    text: str
    is_whole: bool


class LineReader:
    """The lines of a descriptor. Iterate over them once."""

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
                return  # the loop is closed

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
"""The beginning of most clients' requests. It has the id, so that an error can be answered even if the rest is unreadable."""


class MessageWriter:
    """Writes to a descriptor in a thread, so that a client that does not read cannot block the end of the server."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writer = KeyedThreadPool("holdfast-mcp-stdout", threads_max=1, per_key_max=1)

    async def write(self, text: str) -> None:
        """Write the text. Raise OSError if the other end is closed."""
        await self._writer.call(None, partial(_write, self._descriptor, text.encode()))

    async def flush(self) -> None:
        """Do nothing: writes are not buffered."""


class MessageReader:
    """The valid messages of the input. Iterate over them once.

    Invalid messages are answered here with an error, because the SDK does not answer them. `on_end` is called at the end.
    """

    def __init__(self, lines: LineReader, out: MessageWriter, on_end: Callable[[], None]) -> None:
        self._lines = lines
        self._out = out
        self._on_end = on_end

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines:
            error = validate_message(line)
            if error is None:
                yield line.text
            elif line.text.strip():
                log.warning("a message cannot be read", extra={"error": error.message})
                await self._out.write(error_response(line, error) + "\n")
        self._on_end()


def validate_message(line: InputLine) -> types.ErrorData | None:
    if not line.is_whole:
        return types.ErrorData(code=types.INVALID_REQUEST, message=f"a message has at most {limits.MCP_BODY_BYTES_MAX} bytes")
    try:
        message = types.jsonrpc_message_adapter.validate_json(line.text, by_name=False)
        if isinstance(message, types.JSONRPCNotification) and "id" in msgspec.json.decode(line.text):
            return types.ErrorData(code=types.INVALID_REQUEST, message="a request's id must be a string or an integer")
    except Exception:  # noqa: BLE001 - every unreadable message is answered
        return _parse_error(line.text)
    return None


def _parse_error(text: str) -> types.ErrorData:
    try:
        msgspec.json.decode(text)
    except Exception:  # noqa: BLE001 - as above
        return types.ErrorData(code=types.PARSE_ERROR, message="this is not JSON, or JSON that cannot be read")
    return types.ErrorData(code=types.INVALID_REQUEST, message="this is JSON, but not a message of the protocol")


def error_response(line: InputLine, error: types.ErrorData) -> str:
    match = _REQUEST.match(line.text)
    answer = types.JSONRPCError(jsonrpc="2.0", id=None if match is None else msgspec.json.decode(match[1]), error=error)
    return answer.model_dump_json(by_alias=True, exclude_unset=True)


@contextlib.contextmanager
def reserve_stdout() -> Iterator[int]:
    """Reserve standard output for the protocol: inside the context, other output goes to standard error."""
    sys.stdout.flush()
    own = os.dup(STDOUT)
    with contextlib.suppress(OSError):
        os.dup2(STDERR, STDOUT)
    try:
        yield own
    finally:
        # The duplicate stays open: a cancelled write may still use it in its thread.
        os.dup2(own, STDOUT)


def _write(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]
