"""The contract's errors for errors of the driver."""

from typing import Literal

import psycopg
from psycopg import errors as pg

from holdfast.errors import Unavailable
from holdfast.store.base import Contention, StatementFailed

_CONTENTION_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation, pg.LockNotAvailable)


def translate_error(error: BaseException, outcome: Literal["none", "unknown"] = "none") -> BaseException:
    """Return the contract's error for an error of the driver, and any other error unchanged."""
    if isinstance(error, _CONTENTION_ERRORS):
        return Contention(_first_line_with_context(error))
    if isinstance(error, pg.ReadOnlySqlTransaction):
        refused = Unavailable("the server takes no writes: it is a read replica, or set to read only")
        refused.action = "Connect to the primary. With several hosts in the url, target_session_attrs=read-write selects it."
        return refused
    if isinstance(error, pg.DataError | pg.IntegrityError | pg.ProgrammingError | pg.ProgramLimitExceeded):
        return StatementFailed(first_line(error))
    if isinstance(error, psycopg.Error):
        return Unavailable(f"the database cannot do this now: {first_line(error)}", outcome=outcome)
    if isinstance(error, Unavailable) and outcome == "unknown":
        return Unavailable(error.message, outcome=outcome)
    return error


def _first_line_with_context(error: psycopg.Error) -> str:
    """Return the first line of the message, with the table of the locked row if the server gives it."""
    context = (error.diag.context or "").split("\n", 1)[0]
    return f"{first_line(error)} {context}".rstrip()


def first_line(error: psycopg.Error) -> str:
    """Return the message without detail lines, which may quote values."""
    return str(error).split("\n", 1)[0]
