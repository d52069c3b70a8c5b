"""Errors of a server, rebuilt from its problem documents, and the refusal of what only a ledger on a store can do."""

from datetime import datetime
from typing import Any, NoReturn

import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError, PermanentError, TransientError, Unavailable, ValidationError


class ProblemFields(msgspec.Struct, frozen=True):
    """The fields of a problem document that an error is made of. Others are ignored."""

    code: str
    detail: str = ""
    action: str = ""
    retryable: bool = False
    context: dict[str, Any] = {}
    request_id: str | None = None


def _leaves(kind: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() if sub.__module__ == errors.__name__ for leaf in _leaves(sub))]


_TIMES = frozenset({"held_until"})
"""Fields of a context that are times in an error, and texts in JSON."""
_BY_CODE = {kind.code: kind for kind in reversed(_leaves(HoldfastError))}


def error_of(problem: ProblemFields) -> HoldfastError:
    """Return the error that the server raised. A code that this version does not know makes a HoldfastError with that code."""
    kind = _BY_CODE.get(problem.code, HoldfastError)
    error = kind.__new__(kind, problem.detail)
    # The initialisers of subclasses take other arguments, and set what is set below.
    HoldfastError.__init__(error, problem.detail, action=problem.action)
    error.context = {name: _time(value) if name in _TIMES else value for name, value in problem.context.items()}
    error.retryable = problem.retryable
    if kind is HoldfastError:
        error.code = problem.code  # type: ignore[misc]
    if isinstance(error, Unavailable):
        error.outcome = "unknown" if error.context.get("outcome") == "unknown" else "none"
        error.locked = error.context.pop("locked", False) is True
    if isinstance(error, TransientError | PermanentError):
        error.reason_code = error.failure_stage = None
    if isinstance(error, TransientError):
        error.retry_after = None
    return error


def _time(value: Any) -> Any:
    try:
        return msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return value


def needs_store() -> ValidationError:
    return ValidationError(
        "this needs the ledger's database, and this ledger is open on a server",
        field="url",
        action="Open the ledger with the url of its database.",
    )


class StoreOnly:
    """The base of what takes the place of a part of a store. A method that it does not have needs the store."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needs_store()
