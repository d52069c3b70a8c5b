"""Log lines with fields of the job they belong to. Inside a handler every line has them, of any logger.

The library logs below "holdfast" and configures nothing by itself. `configure` is for programs without a logging setup.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import IO, Any, Protocol

from holdfast.core.formatting import format_error
from holdfast.errors import ValidationError
from holdfast.telemetry.formatters import FIELDS, JsonFormatter, TextFormatter, trace_id_of

__all__ = ["FIELDS", "ContextFilter", "JsonFormatter", "TextFormatter", "bind_job", "configure", "configured", "current"]

logger = logging.getLogger("holdfast")
logger.addHandler(logging.NullHandler())

_NO_FIELDS: Mapping[str, Any] = {}
current: ContextVar[Mapping[str, Any]] = ContextVar("holdfast_log_fields", default=_NO_FIELDS)
"""The fields that are bound in the current context. Names are in FIELDS."""


class LoggableJob(Protocol):
    """The attributes of a job that a log line needs."""

    @property
    def id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def correlation_id(self) -> str: ...
    @property
    def trace_id(self) -> str | None: ...


class JobFields(Mapping[str, Any]):
    """The log fields of a job. They are looked up only when a line is logged, because most jobs log nothing.

    `traceparent` is the span in which the job runs. Without one, `trace_id` is that of the span that enqueued the job.
    """

    __slots__ = ("_job", "_traceparent", "_worker")

    def __init__(self, job: LoggableJob, worker: str, traceparent: str | None = None) -> None:
        self._job = job
        self._worker = worker
        self._traceparent = traceparent

    def __getitem__(self, name: str) -> Any:
        if name not in FIELDS:
            raise KeyError(name)
        if name == "worker":
            return self._worker
        if name == "trace_id":
            return trace_id_of(self._traceparent or self._job.trace_id)
        return getattr(self._job, "id" if name == "job_id" else name)

    def __iter__(self) -> Iterator[str]:
        return iter(FIELDS)

    def __len__(self) -> int:
        return len(FIELDS)


class bind_job(JobFields):  # noqa: N801 - reads as a verb
    """Bind the fields of a job to all lines inside the block. The worker uses it in the handler's thread or task."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = current.set(self)

    def __exit__(self, *_: object) -> None:
        current.reset(self._token)


class ContextFilter(logging.Filter):
    """Adds the bound fields to every record. Attach it to a handler: filters of a logger do not see records of its children.

    A field that the line sets in `extra=` is kept. A field that is not bound is None, so that a format string can use it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        bound = current.get()
        for name in FIELDS:
            if name not in record.__dict__:
                record.__dict__[name] = bound.get(name)
        return True


class _OwnHandler(logging.StreamHandler[Any]):
    """The type by which `configure` recognizes its own handler when it is called again."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        """Raise nothing. If standard error is closed, the base class raises ValueError in the code that logs."""
        with contextlib.suppress(ValueError):
            super().handleError(record)


def configure(json: bool = False, level: int | str = "INFO", *, stream: IO[str] | None = None) -> logging.Handler:
    """Send all log lines of this program to `stream` (default: stderr), as JSON for machines or as text for people.

    It configures the root logger, so lines of job handlers are included. Calling it again replaces its own setup and keeps
    other handlers.
    """
    handler = _OwnHandler(stream)
    handler.addFilter(ContextFilter())
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root = logging.getLogger()
    try:
        root.setLevel(level)
    except (ValueError, TypeError) as error:
        raise ValidationError(f"level must be a level of the logging module: {error}", field="level") from None
    for old in [old for old in root.handlers if isinstance(old, _OwnHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    return handler


def configured() -> tuple[bool, int, bool] | None:
    """Return the setup of `configure`, for another process that has to log in the same way: whether it logs JSON, the level,
    and whether it logs to standard output. Return None if it was not called."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _OwnHandler):
            return isinstance(handler.formatter, JsonFormatter), root.level, handler.stream is sys.stdout
    return None


ERROR_CHARACTERS_MAX = 500


def log_step(
    log: logging.Logger, level: int, event: str, fields: Mapping[str, Any], message: str, *, error: Any = None, **facts: Any
) -> None:
    """Log a step of the job with these `fields`. `event` names the step. `error` is in the form that the ledger stores.

    The error's traceback becomes the record's `exc_text`, so every formatter shows it, even if the error was raised in another
    process.
    """
    if not log.isEnabledFor(level):
        return
    text = f"job {fields['job_id']} {message}"
    if error is not None:
        facts["error"] = format_error(error, ERROR_CHARACTERS_MAX)
        text += f": {facts['error']}"
    known = {name: value for name, value in facts.items() if value is not None}
    record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, "note", {**fields, "event": event, **known})
    trace = error.get("traceback") if isinstance(error, dict) else None
    record.exc_text = trace.rstrip() if isinstance(trace, str) else None
    log.handle(record)
