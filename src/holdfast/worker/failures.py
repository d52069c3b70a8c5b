"""What an error of a handler means for its job: tried again, failed, or put aside for a person."""

import traceback
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from holdfast.core.model import FailureStage, ReasonCode
from holdfast.errors import GateDenied, PermanentError, RefusedByValidator, TransientError, ValidationError
from holdfast.ledger.validators import cut, safe_text
from holdfast.worker.signature import UnreadableArgs

E = TypeVar("E", ReasonCode, FailureStage)

TRACE_BYTES_MAX = 4_000
"""How much of a traceback is kept with a failed attempt: its end, where the error is."""


class ClassifiedFailure(NamedTuple):
    """The arguments of `fail`."""

    error: dict[str, Any]
    retryable: bool
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    retry_after: Any = None


class ClassifiedError(Exception):
    """An error that was judged where it happened: in another process."""

    def __init__(self, failure: ClassifiedFailure) -> None:
        super().__init__(failure.error.get("message", ""))
        self.failure = failure


class RetryRules(NamedTuple):
    """Which errors of a handler are worth another try. Holdfast's own classes speak for themselves."""

    retry_on: tuple[type[BaseException], ...] = (Exception,)
    fail_on: tuple[type[BaseException], ...] = ()


def classify(error: BaseException, rules: RetryRules, stage: FailureStage = FailureStage.EXEC) -> ClassifiedFailure:
    """`stage` is where it happened."""
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
    worth = isinstance(error, rules.retry_on) and not isinstance(error, rules.fail_on)
    return ClassifiedFailure(described, worth or not isinstance(error, Exception), failure_stage=stage)


def _is_from_holdfast(error: BaseException) -> bool:
    """Whether a call to Holdfast raised it. A wrong call is a bug of the handler, and says nothing about the job's input."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "holdfast"


def _plain_duration(duration: Any) -> Any:
    """As it can be told from one process to another; what is no duration is refused by whoever is told."""
    match duration:
        case timedelta():
            return duration.total_seconds()
        case None | int() | float() | str():
            return duration
    return type(duration).__name__


def _as_member(words: type[E], word: str | None) -> E | None:
    """A word of the contract; one that is not must not keep a job from failing."""
    return words(word) if word in set(words) else None


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error as the ledger keeps it: type, message and the end of its traceback."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ in ("builtins", "holdfast.errors") else f"{kind.__module__}.{kind.__qualname__}"
    described = {"type": name[:200], "message": cut(safe_text(error), TRACE_BYTES_MAX // 2)}
    if error.__traceback__ is not None:
        described["traceback"] = cut(_format_traceback(error)[-TRACE_BYTES_MAX:], TRACE_BYTES_MAX)
    return described


def _format_traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-20))
    except BaseException:  # noqa: BLE001 - it asks the error for more than its text
        return ""
