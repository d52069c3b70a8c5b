"""Messages that cannot be read: each is answered, since whoever sent it may be waiting."""

import re
from collections import deque
from collections.abc import AsyncIterable
from typing import Any, Protocol

import mcp_types as types
import pydantic
from mcp.shared.message import SessionMessage

HEAD_BYTES = 1_024
"""Of a message that is too long: what is looked at for its id."""
_ID = re.compile(r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(?:"([^"\\]{1,100})"|([0-9]{1,15}))\s*,')


class Sends(Protocol):
    async def send(self, item: Any, /) -> None: ...
    async def aclose(self) -> None: ...


def too_long(head: str, bytes_max: int) -> types.JSONRPCError:
    return _refusal(types.INVALID_REQUEST, f"a message has at most {bytes_max:,} bytes", head)


def garbled(line: str) -> types.JSONRPCError | None:
    """How a line is refused that is no message; None for one that is."""
    try:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except pydantic.ValidationError as error:
        if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
            return _refusal(types.PARSE_ERROR, "this is not JSON", line)
        return _refusal(types.INVALID_REQUEST, "this is not a message of JSON-RPC 2.0", line)
    return None


def _refusal(code: int, message: str, line: str) -> types.JSONRPCError:
    """With the request's id, where it stands at its beginning as clients write it."""
    found = _ID.match(line)
    id_: str | int | None = None if found is None else found[1] or int(found[2])
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=message))


async def sort_out(read: AsyncIterable[Any], refusals: deque[types.JSONRPCError], on: Sends, back: Sends) -> None:
    """Passes messages on; for what could not be read, sends the refusals back, in their order."""
    async for item in read:
        if isinstance(item, Exception):
            await back.send(SessionMessage(refusals.popleft()))
        else:
            await on.send(item)
    await on.aclose()
