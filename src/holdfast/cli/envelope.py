"""The answer to `--json`: one line, in ASCII, whatever is in it."""

import json
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, told

SCHEMA_VERSION = "v1"
JSON_ASKED = "holdfast.json"
"""Under which name a command's context says that `--json` was asked for."""
REQUEST_ID = "holdfast.request_id"
"""Under which name a command's context has the request id that was typed or drawn."""


HINTS = {
    "agent": "Add --agent NAME, or export HOLDFAST_AGENT=NAME.",
}
"""What to do where an option is missing, by the option's name."""


class Failed(Exception):
    """A command came to nothing, for a reason that is not a ledger's refusal. `code` never changes once released."""

    def __init__(self, code: str, message: str, *, action: str = "", exit_code: int = 1, **context: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action
        self.exit_code = exit_code
        self.is_told = False
        """Whether people were told already, in the answer itself."""
        self.context = context
        self.request_id: str | None = None
        """Of the command, where it has one."""


def misuse(message: str, *, action: str = "See --help.") -> Failed:
    """What was typed cannot be meant."""
    return Failed("usage", message, action=action, exit_code=2)


def success(data: Any, request_id: str | None = None) -> str:
    return _line({"schema_version": SCHEMA_VERSION, "success": True, "data": data, **_asked(request_id)})


def failure(error: Failed | HoldfastError) -> str:
    return _line({"schema_version": SCHEMA_VERSION, "success": False, **told(error), **_asked(error.request_id)})


def _asked(request_id: str | None) -> dict[str, str]:
    return {} if request_id is None else {"request_id": str(request_id)}


def _line(whole: dict[str, Any]) -> str:
    """ASCII alone, so that nothing in it can end the line or speak to a terminal; DEL is the one that json leaves."""
    plain = msgspec.to_builtins(whole, enc_hook=str)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f")
