"""OpenTelemetry spans, if the program that uses Holdfast has loaded OpenTelemetry. Otherwise this costs a dict lookup.

A job carries the W3C traceparent of the span that enqueued it, as its `trace_id`. The process that runs the job continues that
trace.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core import limits
from holdfast.core.commands import Enqueue
from holdfast.errors import HoldfastError
from holdfast.telemetry.logs import LoggableJob

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

NAME = "holdfast"
CORRELATION = "correlation_id"
"""The key of the correlation id in W3C baggage."""
TRACEPARENT_CHARACTERS = 55
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,200})?")
"""A later version of the format may have more at the end."""
_inherited: ContextVar[str | None] = ContextVar("holdfast_traceparent", default=None)
_NO_SPAN: "AbstractContextManager[Span | None]" = nullcontext()


class TraceableJob(LoggableJob, Protocol):
    """The attributes of a job that its span needs."""

    created_at: datetime
    available_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None


def is_loaded() -> bool:
    """Return whether this program has loaded OpenTelemetry. Holdfast does not load it: without an exporter no span is seen."""
    return sys.modules.get("opentelemetry.trace") is not None


def current_traceparent() -> str | None:
    """Return the current span in W3C form, "00-<trace>-<span>-<flags>", or None.

    Without OpenTelemetry, it is the span of another program whose trace this thread or task continues.
    """
    return _traceparent(None) if is_loaded() else _inherited.get()


def read_traceparent(header: str | None) -> str | None:
    """Return a W3C traceparent that another program has sent, or None. One that is not valid is ignored, as W3C wants it."""
    return header[:TRACEPARENT_CHARACTERS] if header is not None and _TRACEPARENT.fullmatch(header) else None


def with_correlation(commands: list[Enqueue]) -> list[Enqueue]:
    """Add the correlation id of the current W3C baggage to commands without one.

    Baggage comes from other programs, so an invalid id is ignored.
    """
    from opentelemetry import baggage

    value = baggage.get_baggage(CORRELATION)
    if value is None:
        return commands
    try:
        correlation_id = limits.check_key(CORRELATION, value)
    except HoldfastError:
        return commands
    return [
        command
        if command.correlation_id is not None
        else msgspec.structs.replace(command, correlation_id=correlation_id, bare=False)
        for command in commands
    ]


def _traceparent(context: "Context | None") -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier.get("traceparent")


@contextmanager
def attached_to(traceparent: str | None) -> Iterator[None]:
    """Continue the trace of another process inside the block. Do nothing without a traceparent."""
    if traceparent is None:
        yield
        return
    if not is_loaded():
        inherited = _inherited.set(traceparent)
        try:
            yield
        finally:
            _inherited.reset(inherited)
        return
    from opentelemetry import context

    token = context.attach(_parent(traceparent))
    try:
        yield
    finally:
        context.detach(token)


def _tracer() -> "Tracer":
    from opentelemetry import trace

    return trace.get_tracer(NAME)


@contextmanager
def enqueue_span(commands: Sequence[Enqueue]) -> Iterator[list[Enqueue]]:
    """Open one PRODUCER span around an enqueue of any number of jobs. Yield the commands with the span as their trace_id, unless
    the caller gave one. Call it only if `current_traceparent()` is not None. Without OpenTelemetry there is no span of our own,
    and the trace is that of the program whose trace is continued."""
    if not is_loaded():
        yield _with_trace(commands, _inherited.get())
        return
    from opentelemetry import trace

    kinds, queues = {command.kind for command in commands}, {command.queue for command in commands}
    attributes: dict[str, Any] = {
        "messaging.system": NAME,
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.batch.message_count": len(commands),
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = commands[0].queue
    if len(kinds) == 1:
        attributes["holdfast.kind"] = commands[0].kind
    name = f"enqueue {commands[0].kind}" if len(kinds) == 1 else "enqueue"
    with _tracer().start_as_current_span(name, kind=trace.SpanKind.PRODUCER, attributes=attributes):
        yield _with_trace(commands, _traceparent(None))


def _with_trace(commands: Sequence[Enqueue], traceparent: str | None) -> list[Enqueue]:
    return [
        command if command.trace_id is not None else msgspec.structs.replace(command, trace_id=traceparent, bare=False)
        for command in commands
    ]


def job_span(job: TraceableJob, worker: str) -> "AbstractContextManager[Span | None]":
    """Return a context manager with a CONSUMER span that is current inside. The worker uses it in the handler's thread.

    Its parent is the span in the job's trace_id. If there is none, or not in W3C form, a new trace begins. The job's correlation
    id is in the current baggage. Exceptions of the handler are recorded and re-raised. Without OpenTelemetry the span is None.
    """
    return _job_span(job, worker) if is_loaded() else _NO_SPAN


@contextmanager
def _job_span(job: TraceableJob, worker: str) -> "Iterator[Span]":
    from opentelemetry import baggage, context, trace

    parent = _parent(job.trace_id)
    attributes: dict[str, Any] = {
        "messaging.system": NAME,
        "messaging.destination.name": job.queue,
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": job.correlation_id,
        "holdfast.kind": job.kind,
        "holdfast.attempt": job.attempt,
        "holdfast.worker": worker,
    }
    if job.claimed_at is not None:
        ready_at = max(job.available_at, job.created_at)
        attributes["holdfast.wait_seconds"] = (job.claimed_at - ready_at).total_seconds()
        if trace.get_current_span(parent).get_span_context().is_valid:
            _claim_span(job, parent, attributes, job.claimed_at)
    token = context.attach(baggage.set_baggage(CORRELATION, job.correlation_id))
    try:
        with _tracer().start_as_current_span(
            f"run {job.kind}", context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
        ) as span:
            yield span
    finally:
        context.detach(token)


def _claim_span(job: TraceableJob, parent: "Context", attributes: dict[str, Any], claimed_at: datetime) -> None:
    """Record the claim afterwards: its trace is known only once the job is claimed. Both times are the ledger's."""
    from opentelemetry import trace

    claim_attributes = attributes | {"messaging.operation.type": "receive", "messaging.operation.name": "claim"}
    span = _tracer().start_span(
        f"claim {job.kind}", parent, kind=trace.SpanKind.CLIENT, attributes=claim_attributes, start_time=_nanoseconds(claimed_at)
    )
    span.end(_nanoseconds(job.started_at or claimed_at))


def _parent(traceparent: str | None) -> "Context":
    """Return the context of a job's trace. Without a trace it is empty, independent of the current context."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
