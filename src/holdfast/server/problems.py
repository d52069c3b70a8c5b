"""Errors as problem documents (RFC 9457)."""

from typing import Any

import msgspec

from holdfast.core.text import iso_format
from holdfast.errors import Conflict, HoldfastError, LimitExceeded, NotClaimable, NotStalledYet, TooManyRequests, Unavailable

PROBLEM_TYPE = "application/problem+json"
VALUE_CHARACTERS_MAX = 200
"""A text of the caller is cut to this length in an answer."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=False):
    """A refusal. Programs decide by `code`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    retryable: bool
    fault: str
    action: str
    context: dict[str, Any]
    request_id: str | None = None


def problem(error: HoldfastError, instance: str = "", *, matched: bool = False, request_id: str | None = None) -> Problem:
    """Return the document of an error. `matched` says that the request had If-Match, so that a conflict is 412."""
    status = 412 if matched and type(error) is Conflict else error.http_status
    return Problem(
        type=f"/problems/{error.code}",
        title=error.code.replace("_", " ").capitalize(),
        status=status,
        detail=error.message,
        instance=f"urn:holdfast:request:{instance}" if instance else "",
        code=error.code,
        retryable=error.retryable,
        fault=error.fault,
        action=error.action,
        context={name: _plain(value) for name, value in _context(error).items()},
        request_id=request_id or error.request_id,
    )


def _context(error: HoldfastError) -> dict[str, Any]:
    """Return the facts behind an error. A caller that met a lock need not wait for it again."""
    return {**error.context, "locked": True} if isinstance(error, Unavailable) and error.locked else error.context


def retry_after(error: HoldfastError) -> int | None:
    """Return the seconds after which to send the request again, if that is known."""
    if isinstance(error, TooManyRequests | NotClaimable | NotStalledYet):
        seconds = error.context.get("retry_after_s")
        return None if seconds is None else max(1, round(seconds))
    return 1 if isinstance(error, Unavailable) and error.retryable else None


def _plain(value: Any) -> Any:
    """Return a value of a context as JSON can have it. Texts are cut: they may come from the request."""
    if isinstance(value, str):
        return value if len(value) <= VALUE_CHARACTERS_MAX else value[:VALUE_CHARACTERS_MAX] + "…"
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if hasattr(value, "isoformat"):
        return iso_format(value, "microseconds")
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)[:VALUE_CHARACTERS_MAX]


def too_large(what: str, size: int, most: int) -> LimitExceeded:
    return LimitExceeded(f"{what} has more than {most} bytes", field="body", actual=size, limit=most)
