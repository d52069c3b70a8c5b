"""Spans by OpenTelemetry, where the program that uses Holdfast has loaded it. Elsewhere this costs a look into a dict.

A job carries the W3C traceparent of the span that enqueued it, as its `trace_id`. Whoever runs the job, in whatever process,
goes on from there.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core import limits
from holdfast.core.commands import Enqueue
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

NAME = "holdfast"
CORRELATION = "correlation_id"
"""Its key in W3C baggage."""
_NO_SPAN: "AbstractContextManager[Span | None]" = nullcontext()


class TraceableJob(Protocol):
    """A job, as far as its span needs one."""

    id: int
    queue: str
    kind: str
    attempt: int
    correlation_id: str
    trace_id: str | None
    created_at: datetime
    available_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None


def is_loaded() -> bool:
    """Whether this program traces at all. Holdfast does not load OpenTelemetry: nobody would see its spans."""
    return sys.modules.get("opentelemetry.trace") is not None


def current_traceparent() -> str | None:
    """The current span in W3C form, "00-<trace>-<span>-<flags>"; None where there is none."""
    return _traceparent(None) if is_loaded() else None


def with_correlation(commands: list[Enqueue]) -> list[Enqueue]:
    """The commands with the correlation id of the current W3C baggage, unless their caller gave one.

    Baggage comes from other programs: an id that no job can have is left out.
    """
    from opentelemetry import baggage

    found = baggage.get_baggage(CORRELATION)
    if found is None:
        return commands
    try:
        given = limits.check_key(CORRELATION, found)
    except HoldfastError:
        return commands
    return [
        command if command.correlation_id is not None else msgspec.structs.replace(command, correlation_id=given, bare=False)
        for command in commands
    ]


def _traceparent(context: "Context | None") -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier.get("traceparent")


@contextmanager
def attached_to(traceparent: str | None) -> Iterator[None]:
    """Go on, within, from a span of another process; nothing changes where there is none, or nobody traces."""
    if traceparent is None or not is_loaded():
        yield
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
    """One PRODUCER span around an enqueue of any number of jobs. Gives the commands to send: each carries the span, unless its
    caller said what it belongs to. Call it only where `current_traceparent()` has something to say."""
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
        traceparent = _traceparent(None)
        yield [
            command if command.trace_id is not None else msgspec.structs.replace(command, trace_id=traceparent, bare=False)
            for command in commands
        ]


def job_span(job: TraceableJob, worker: str) -> "AbstractContextManager[Span | None]":
    """For the worker, around the handler and in the handler's own thread: a CONSUMER span that is current inside.

    Its parent is the span in the job's trace_id; where that is none, or a text of some other make, it begins a trace. The job's
    correlation id is in the current baggage. What the handler raises is recorded and goes on. None is given where nobody traces.
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
    """The claim, told afterwards: only with the job in hand is its trace known. Both times are the ledger's."""
    from opentelemetry import trace

    told = attributes | {"messaging.operation.type": "receive", "messaging.operation.name": "claim"}
    span = _tracer().start_span(
        f"claim {job.kind}", parent, kind=trace.SpanKind.CLIENT, attributes=told, start_time=_nanoseconds(claimed_at)
    )
    span.end(_nanoseconds(job.started_at or claimed_at))


def _parent(traceparent: str | None) -> "Context":
    """Where a job's trace goes on; an empty context, whatever is current here, where it has none."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
