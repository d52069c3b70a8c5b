"""Classify a handler's error: retry the job, fail it, or dead-letter it."""

import traceback
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from holdfast.core.model import FailureStage, ReasonCode
from holdfast.core.text import safe_str, truncate_start
from holdfast.errors import GateDenied, PermanentError, RefusedByValidator, TransientError, ValidationError
from holdfast.worker.signature import UnreadableArgs

E = TypeVar("E", ReasonCode, FailureStage)

TRACE_BYTES_MAX = 4_000
"""How much of a traceback is kept with a failed attempt. Its end is kept, where the error is."""


class ClassifiedFailure(NamedTuple):
    """The arguments of the ledger's `fail`."""

    error: dict[str, Any]
    retryable: bool
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    retry_after: Any = None


class ClassifiedError(Exception):
    """An error that was classified where it was raised, for example in a child process."""

    def __init__(self, failure: ClassifiedFailure) -> None:
        super().__init__(failure.error.get("message", ""))
        self.failure = failure


class RetryRules(NamedTuple):
    """Which exceptions of a handler are retried. Holdfast's own exception classes are classified by their type."""

    retry_on: tuple[type[BaseException], ...] = (Exception,)
    fail_on: tuple[type[BaseException], ...] = ()


def classify(error: BaseException, rules: RetryRules, stage: FailureStage = FailureStage.EXEC) -> ClassifiedFailure:
    """Return how to record an error that was raised in `stage`."""
    described = describe_error(error)
    match error:
        case TransientError():
            code, failed_in = _as_member(ReasonCode, error.reason_code), _as_member(FailureStage, error.failure_stage) or stage
            return ClassifiedFailure(described, True, code, failed_in, _plain_duration(error.retry_after))
        case GateDenied():
            return ClassifiedFailure({**described, "code": error.code}, True, failure_stage=stage)
        case PermanentError():
            return ClassifiedFailure(
                described,
                False,
                _as_member(ReasonCode, error.reason_code),
                _as_member(FailureStage, error.failure_stage) or stage,
            )
        case RefusedByValidator():
            return ClassifiedFailure(described, False, ReasonCode.VALIDATION_FAILED, FailureStage.OUTPUT)
        case UnreadableArgs():
            return ClassifiedFailure({**described, "type": "ValidationError"}, False, ReasonCode.PARSE_ERROR, FailureStage.INPUT)
        case ValidationError() if stage is FailureStage.OUTPUT or not _is_from_holdfast(error):
            return ClassifiedFailure(
                described, False, ReasonCode.VALIDATION_FAILED, FailureStage.INPUT if stage is FailureStage.EXEC else stage
            )
    if isinstance(error, TimeoutError) and not isinstance(error, rules.fail_on):
        return ClassifiedFailure(described, True, ReasonCode.TIMEOUT, stage)
    retryable = isinstance(error, rules.retry_on) and not isinstance(error, rules.fail_on)
    return ClassifiedFailure(described, retryable or not isinstance(error, Exception), failure_stage=stage)


def _is_from_holdfast(error: BaseException) -> bool:
    """Return whether a call to Holdfast raised the error. That is a bug in the handler, not a fault of the job's input."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "holdfast"


def _plain_duration(duration: Any) -> Any:
    """Return the duration in a form that can be sent to another process.

    Anything else becomes the name of its type, which the ledger refuses.
    """
    match duration:
        case timedelta():
            return duration.total_seconds()
        case None | int() | float() | str():
            return duration
    return type(duration).__name__


def _as_member(enum: type[E], value: str | None) -> E | None:
    """Return the member of the enum, or None: an unknown value must not keep a job from failing."""
    return enum(value) if value in set(enum) else None


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return an error as the ledger stores it: type, message and the end of its traceback."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ in ("builtins", "holdfast.errors") else f"{kind.__module__}.{kind.__qualname__}"
    described = {"type": name[:200], "message": truncate_start(safe_str(error), TRACE_BYTES_MAX // 2)}
    if error.__traceback__ is not None:
        described["traceback"] = truncate_start(_format_traceback(error)[-TRACE_BYTES_MAX:], TRACE_BYTES_MAX)
    return described


def _format_traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-20))
    except BaseException:  # noqa: BLE001 - formatting calls methods of the user's exception
        return ""
