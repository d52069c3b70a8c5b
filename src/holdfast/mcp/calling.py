"""A tool is called: its arguments are read, its verb is done, and whatever comes of it is an answer."""

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec

from holdfast.errors import HoldfastError, ValidationError, told
from holdfast.mcp import asks
from holdfast.mcp.answers import Refused, plain
from holdfast.mcp.caller import Caller
from holdfast.mcp.tools import ToolEntry
from holdfast.mcp.words import words
from holdfast.telemetry.lines import visible

log = logging.getLogger("holdfast.mcp")


def call(tool: ToolEntry, caller: Caller, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
    """What the tool answers. A refusal is an answer too, and one that a model can act upon; nothing is raised."""
    try:
        ask = _read(tool.ask, arguments)
        caller.calls(ask.session)
        answer = tool.verb(caller, ask)
        return _result(plain(answer), words(answer))
    except HoldfastError as error:
        return _refused(error)
    except Exception:
        log.exception("a call failed")
        return _refused(HoldfastError("the server could not do this, for a reason that is in its log"))


def _read(kind: type[asks.Ask], arguments: Mapping[str, Any] | None) -> asks.Ask:
    try:
        return msgspec.convert(dict(arguments or {}), kind)
    except msgspec.ValidationError as error:
        raise ValidationError(str(error)) from None


def _refused(error: HoldfastError) -> types.CallToolResult:
    said = visible(f"{error.code}: {error.message}. {error.action}".strip())
    return _result(plain(msgspec.convert(told(error), Refused)), said, is_error=True)


def _result(structured: Any, text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=is_error
    )
