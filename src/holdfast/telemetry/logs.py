"""Log lines that say which job they are about. Inside a handler that is every line, whoever writes it.

The library logs below "holdfast" and configures nothing by itself; `configure` is for programs that have no setup of their own.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar, Token
from typing import IO, Any, Literal, Protocol

from holdfast.core.formatting import format_error
from holdfast.errors import ValidationError
from holdfast.telemetry.formatters import FIELDS, JsonFormatter, LogfmtFormatter, TextFormatter, trace_id_of

__all__ = ["FIELDS", "ContextFilter", "JsonFormatter", "LogfmtFormatter", "TextFormatter", "bind", "bind_job", "configure",
           "configured", "current"]  # fmt: skip

Form = Literal["text", "logfmt", "json"]
FORMATTERS: dict[Form, type[logging.Formatter]] = {"text": TextFormatter, "logfmt": LogfmtFormatter, "json": JsonFormatter}

logger = logging.getLogger("holdfast")
logger.addHandler(logging.NullHandler())

_NO_FIELDS: Mapping[str, Any] = {}
current: ContextVar[Mapping[str, Any]] = ContextVar("holdfast_log_fields", default=_NO_FIELDS)
"""What is bound here and now: some of FIELDS."""


class LoggableJob(Protocol):
    """A job, as far as a log line needs one."""

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


class bind:  # noqa: N801 - reads as a verb: `with bind(...)`
    """Bind fields for the lines within; they add to what is bound around them, and each may be entered once.

    job_id, attempt, kind, queue, worker, correlation_id, trace_id: others belong into `extra=` of the line itself. Of a W3C
    traceparent as `trace_id`, lines have the trace's own 32 hex digits.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        unknown = fields.keys() - FIELDS
        if unknown:
            raise ValidationError(f"log lines have no field {min(unknown)!r:.80}", field="bind")
        self._fields = {name: trace_id_of(value) if name == "trace_id" else value for name, value in fields.items()}
        self._token: Token[Mapping[str, Any]] | None = None

    def __enter__(self) -> None:
        self._token = current.set({**current.get(), **self._fields})

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        current.reset(self._token)


class JobFields(Mapping[str, Any]):
    """What a line says of a job, looked up when there is a line: most jobs log nothing.

    `traceparent` is the span that the job is run in; without one, `trace_id` is that of the span that enqueued the job.
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
    """For the worker, around the handler and in the handler's own thread or task: all lines within are about this job."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = current.set(self)

    def __exit__(self, *_: object) -> None:
        current.reset(self._token)


class ContextFilter(logging.Filter):
    """Puts what is bound on every record. It belongs on a handler: a logger's filters do not see what its children log.

    A field that the line itself gives in `extra=` is left alone; one that is not bound is None, so that a format can name it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        bound = current.get()
        for name in FIELDS:
            if name not in record.__dict__:
                record.__dict__[name] = bound.get(name)
        return True


class _OwnHandler(logging.StreamHandler[Any]):
    """Told apart from the handlers of others when `configure` is called again."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class names it so
        """Raise nothing. The base class raises ValueError where standard error is closed, into whatever wanted to log."""
        with contextlib.suppress(ValueError):
            super().handleError(record)


def configure(
    json: bool = False, level: int | str = "INFO", *, stream: IO[str] | None = None, logfmt: bool = False
) -> logging.Handler:
    """Send everything that is logged in this program to `stream` (stderr): JSON or logfmt for machines, or text for people.

    Sets up the root logger, so that a handler's own lines come too. Calling it again replaces what it did before, and
    leaves alone what others did.
    """
    if json and logfmt:
        raise ValidationError("lines are JSON or logfmt, not both", field="logfmt")
    handler = _OwnHandler(stream)
    handler.addFilter(ContextFilter())
    handler.setFormatter(FORMATTERS["json" if json else "logfmt" if logfmt else "text"]())
    root = logging.getLogger()
    try:
        root.setLevel(level)
    except (ValueError, TypeError) as error:
        raise ValidationError(f"level must be a level of logging's: {error}", field="level") from None
    for old in [old for old in root.handlers if isinstance(old, _OwnHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    return handler


def configured() -> tuple[Form, int, bool] | None:
    """How `configure` has set this program up, for another process that is to log alike: in which form, from which level,
    to standard output or not. None where it has not been called."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _OwnHandler):
            forms = [form for form, made in FORMATTERS.items() if type(handler.formatter) is made]
            return forms[0] if forms else "text", root.level, handler.stream is sys.stdout
    return None


ERROR_CHARACTERS_MAX = 500


def log_step(
    log: logging.Logger, level: int, event: str, fields: Mapping[str, Any], said: str, *, error: Any = None, **facts: Any
) -> None:
    """Log a step of the job that `fields` are about. `event` names the step; `error` is one as the ledger keeps it.

    The error's traceback is the record's `exc_text`, so every formatter shows it, also where the error was raised in another
    process.
    """
    if not log.isEnabledFor(level):
        return
    text = f"job {fields['job_id']} {said}"
    if error is not None:
        facts["error"] = format_error(error, ERROR_CHARACTERS_MAX)
        text += f": {facts['error']}"
    known = {name: value for name, value in facts.items() if value is not None}
    record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, "note", {**fields, "event": event, **known})
    trace = error.get("traceback") if isinstance(error, dict) else None
    record.exc_text = trace.rstrip() if isinstance(trace, str) else None
    log.handle(record)
