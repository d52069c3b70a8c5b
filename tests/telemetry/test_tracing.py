"""Traces from the span that enqueues to the span that runs, through the ledger."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Ledger
from holdfast.telemetry.tracing import current_traceparent, job_span
from holdfast.testing import ManualClock
from tests.contract import builders as b

_exporter = InMemorySpanExporter()
tracer = trace.get_tracer("test")


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    """A process has one provider, which the first caller sets."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    found = trace.get_tracer_provider()
    assert isinstance(found, TracerProvider)
    found.add_span_processor(SimpleSpanProcessor(_exporter))


@pytest.fixture
def spans(provider: None) -> Callable[[], dict[str, ReadableSpan]]:
    """The spans that have ended, by name."""
    _exporter.clear()
    return lambda: {span.name: span for span in _exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


Spans = Callable[[], dict[str, ReadableSpan]]


def test_a_trace_continues_from_the_enqueue_to_calls_of_the_handler(ledger: Ledger, clock: ManualClock, spans: Spans) -> None:
    with tracer.start_as_current_span("request"):
        ledger.enqueue("index_page", correlation_id="order-7")
    clock.advance(2)
    [job] = ledger.claim("w", start=True)
    with job_span(job, "w"), tracer.start_as_current_span("call"):
        pass

    found = spans()
    enqueue, claim, handler = found["enqueue index_page"], found["claim index_page"], found["run index_page"]
    trace_id, enqueue_id = ids(enqueue)
    assert job.trace_id is not None and job.trace_id.startswith(f"00-{trace_id:032x}-{enqueue_id:016x}-")
    assert parent(enqueue) == ids(found["request"])
    assert parent(claim) == parent(handler) == ids(enqueue)
    assert parent(found["call"]) == ids(handler)
    assert (enqueue.kind, handler.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(handler.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.destination.name": "default",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": "order-7",
        "holdfast.kind": "index_page",
        "holdfast.attempt": 1,
        "holdfast.worker": "w",
        "holdfast.wait_seconds": 2.0,
    }
    assert claim.start_time == claim.end_time == int(clock.now().timestamp()) * 10**9


def test_the_events_have_the_trace(ledger: Ledger, spans: Spans) -> None:
    with tracer.start_as_current_span("request"):
        job = ledger.enqueue("a")
    assert job.trace_id == ledger.get(job.id).trace_id
    assert {event.trace_id for event in ledger.events(job.id)} == {job.trace_id}


def test_many_jobs_share_one_span(ledger: Ledger, spans: Spans) -> None:
    with tracer.start_as_current_span("request"):
        jobs = ledger.enqueue_many([{"kind": "a"}, {"kind": "b", "trace_id": "mine"}, {"kind": "a"}])

    assert [job.trace_id for job in jobs] == [jobs[0].trace_id, "mine", jobs[0].trace_id]
    attributes = spans()["enqueue"].attributes
    assert attributes is not None and attributes["messaging.batch.message_count"] == 3


def test_no_span_is_created_without_a_current_span(ledger: Ledger, spans: Spans) -> None:
    job = ledger.enqueue("a")
    assert job.trace_id is None
    assert current_traceparent() is None
    assert spans() == {}


@pytest.mark.parametrize(
    "trace_id",
    [
        None,
        "anything at all",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
        "1" * 32,
    ],
)
def test_a_foreign_trace_id_begins_a_trace(ledger: Ledger, spans: Spans, trace_id: str | None) -> None:
    ledger.enqueue("a", trace_id=trace_id)
    [job] = ledger.claim("w", start=True)
    with tracer.start_as_current_span("the worker's own span"), job_span(job, "w"):
        pass

    assert spans().keys() == {"run a", "the worker's own span"}
    assert parent(spans()["run a"]) is None


def test_a_given_traceparent_is_followed(ledger: Ledger, spans: Spans) -> None:
    ledger.enqueue("a", trace_id="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    [job] = ledger.claim("w", start=True)
    with job_span(job, "w"):
        pass
    assert parent(spans()["run a"]) == (int("1" * 32, 16), int("2" * 16, 16))


def test_an_exception_of_the_handler_is_recorded_and_raised(ledger: Ledger, spans: Spans) -> None:
    ledger.enqueue("a")
    [job] = ledger.claim("w", start=True)
    with pytest.raises(LookupError), job_span(job, "w"):
        raise LookupError("no such page")

    span = spans()["run a"]
    assert span.status.status_code is StatusCode.ERROR
    [event] = span.events
    assert event.attributes is not None and event.attributes["exception.message"] == "no such page"


def test_a_refused_enqueue_is_an_error_of_its_span(ledger: Ledger, spans: Spans) -> None:
    ledger.close()
    with tracer.start_as_current_span("request"), b.refused("unavailable"):
        ledger.enqueue("a")
    assert spans()["enqueue a"].status.status_code is StatusCode.ERROR


def test_a_request_repeated_in_another_span_is_recognised(ledger: Ledger, spans: Spans) -> None:
    jobs = []
    for _ in range(2):
        with tracer.start_as_current_span("request"):
            jobs.append(ledger.enqueue("a", {"n": 1}, request_id="r-1"))
    assert jobs[0].id == jobs[1].id
    assert jobs[0].trace_id == jobs[1].trace_id


def test_the_library_does_not_load_opentelemetry(tmp_path: Path) -> None:
    program = f"""
import sys
import holdfast
from holdfast.telemetry.tracing import current_traceparent, job_span
from holdfast.telemetry import logs
from holdfast.watch import prometheus
with holdfast.open("sqlite:///{tmp_path}/jobs.db") as ledger:
    ledger.enqueue("a")
    [job] = ledger.claim("w", start=True)
    with job_span(job, "w") as span:
        assert span is None
    assert current_traceparent() is None
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_api_without_an_sdk_makes_no_spans_and_breaks_nothing(tmp_path: Path) -> None:
    program = f"""
import holdfast
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from holdfast.telemetry.tracing import job_span
with holdfast.open("sqlite:///{tmp_path}/jobs.db") as ledger:
    with trace.get_tracer("test").start_as_current_span("request"):
        assert ledger.enqueue("a").trace_id is None
    [job] = ledger.claim("w", start=True)
    with job_span(job, "w"):
        pass
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_correlation_id_is_baggage_for_what_the_handler_calls(ledger: Ledger) -> None:
    ledger.enqueue("a", correlation_id="order 7, ü")
    [job] = ledger.claim("w", start=True)
    headers: dict[str, str] = {}
    with job_span(job, "w"):
        W3CBaggagePropagator().inject(headers)
        child, other = ledger.enqueue("b"), ledger.enqueue("b", correlation_id="mine")
    assert baggage.get_baggage("correlation_id", W3CBaggagePropagator().extract(headers)) == "order 7, ü"
    assert baggage.get_baggage("correlation_id") is None
    assert (ledger.get(child.id).correlation_id, ledger.get(other.id).correlation_id) == ("order 7, ü", "mine")


@pytest.mark.parametrize("value", ["x" * 501, "", "a\nb", 7])
def test_baggage_that_no_job_can_have_is_left_out(ledger: Ledger, value: object) -> None:
    token = context.attach(baggage.set_baggage("correlation_id", value))
    try:
        job = ledger.enqueue("a")
    finally:
        context.detach(token)
    assert ledger.get(job.id).correlation_id == f"{ledger.id}-{job.id}"
