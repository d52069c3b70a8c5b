"""The protocol on standard input and output: what cannot be read is answered, and what nobody reads holds up nobody."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import mcp_types as types
import msgspec

from holdfast.core import limits
from holdfast.mcp.crew import Crew
from holdfast.mcp.lines import Line, Lines

log = logging.getLogger("holdfast.mcp")

STDIN, STDOUT, STDERR = 0, 1, 2
_REQUEST = re.compile(r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,15}|"[^"\\]{1,200}")\s*,\s*"method"\s*:')
"""How the requests of most clients begin: whoever waits for an answer can be told, however the rest reads."""


class Outbox:
    """A descriptor that is written to by a thread: a client that does not read can keep nobody from ending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writer = Crew("holdfast-mcp-stdout", most=1, each=1)

    async def write(self, text: str) -> None:
        """Raises OSError where nobody will read it."""
        await self._writer.call(None, partial(_write, self._descriptor, text.encode()))

    async def flush(self) -> None:
        """There is nothing to flush."""


class Inbox:
    """The messages that can be read, to be iterated once. Others are answered here, as nobody else would. `ended` is told
    when there are no more."""

    def __init__(self, lines: Lines, out: Outbox, ended: Callable[[], None]) -> None:
        self._lines = lines
        self._out = out
        self._ended = ended

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines:
            wrong = what_is_wrong(line)
            if wrong is None:
                yield line.text
            elif line.text.strip():
                log.warning("a message cannot be read", extra={"error": wrong.message})
                await self._out.write(refusal(line, wrong) + "\n")
        self._ended()


def what_is_wrong(line: Line) -> types.ErrorData | None:
    if not line.is_whole:
        return types.ErrorData(code=types.INVALID_REQUEST, message=f"a message has at most {limits.MCP_BODY_BYTES_MAX} bytes")
    try:
        message = types.jsonrpc_message_adapter.validate_json(line.text, by_name=False)
        if isinstance(message, types.JSONRPCNotification) and "id" in msgspec.json.decode(line.text):
            return types.ErrorData(code=types.INVALID_REQUEST, message="a request's id is a text or an integer")
    except Exception:  # noqa: BLE001 - whatever it is, its sender wants an answer
        return _unread(line.text)
    return None


def _unread(text: str) -> types.ErrorData:
    try:
        msgspec.json.decode(text)
    except Exception:  # noqa: BLE001 - as above
        return types.ErrorData(code=types.PARSE_ERROR, message="this is no JSON, or nothing that can be read")
    return types.ErrorData(code=types.INVALID_REQUEST, message="this is JSON, but no message of the protocol")


def refusal(line: Line, wrong: types.ErrorData) -> str:
    found = _REQUEST.match(line.text)
    answer = types.JSONRPCError(jsonrpc="2.0", id=None if found is None else msgspec.json.decode(found[1]), error=wrong)
    return answer.model_dump_json(by_alias=True, exclude_unset=True)


@contextlib.contextmanager
def wire() -> Iterator[int]:
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
