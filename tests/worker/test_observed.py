"""What operators see of a worker: spans, log lines, counts."""

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import App, AsyncContext, Context, TransientError
from holdfast.services import CallableSink
from holdfast.telemetry import logs
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended

tracer = trace.get_tracer("test")
Spans = Callable[[], dict[str, ReadableSpan]]


@pytest.fixture
def spans() -> Spans:
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return lambda: {span.name: span for span in exporter.get_finished_spans()}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What was logged, as machines read it."""
    stream = io.StringIO()
    handler = logs.configure(json=True, level="INFO", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_a_trace_goes_through_the_worker_to_its_childrens_jobs(app: App, start: Starter, spans: Spans, isolation: str) -> None:
    @app.handler()
    def child() -> None:
        with tracer.start_as_current_span("deep"):
            pass

    if isolation == "thread":

        @app.handler("parent")
        def parent(job: Context) -> int:
            with tracer.start_as_current_span("call"):
                return job.enqueue(child).id
    else:

        @app.handler("parent")
        async def parent_on_loop(job: AsyncContext) -> int:
            with tracer.start_as_current_span("call"):
                return (await job.enqueue(child)).id

    with tracer.start_as_current_span("request") as request:
        job = app.options(correlation_id="order-7").enqueue("parent")
    start()
    made = app.ledger.get(ended(app, job).result)
    ended(app, made)
    found = wait_until(lambda: spans() if "run child" in spans() else None)
    assert found is not None
    expected = request.get_span_context().trace_id
    for name in ("enqueue parent", "claim parent", "run parent", "call", "enqueue child", "run child", "deep"):
        context = found[name].context
        assert context is not None
        assert context.trace_id == expected, name
    call, run = found["call"], found["run parent"]
    assert call.parent is not None and run.context is not None
    assert call.parent.span_id == run.context.span_id
    assert run.attributes is not None
    assert run.attributes["messaging.message.conversation_id"] == "order-7"
    assert made.correlation_id == "order-7"


def test_a_handlers_own_lines_say_which_job(app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]) -> None:
    log = logging.getLogger("mine")

    @app.handler()
    def talk() -> None:
        log.info("working")

    job = app.options(correlation_id="c-9").enqueue(talk)
    start()
    ended(app, job)
    [line] = [line for line in lines() if line["message"] == "working"]
    assert (line["job_id"], line["attempt"], line["kind"], line["correlation_id"], line["worker"]) == (
        job.id,
        1,
        "talk",
        "c-9",
        "w0",
    )


def test_a_refused_check_and_a_failed_attempt_are_logged(
    app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    def ready(job: Context) -> None:
        if job.job.attempt == 1:
            raise KeyError("no key")

    @app.handler(checks=ready, queue="q", attempts=2, policy={"backoff_base": 0})
    def careful() -> None:
        raise ValueError("no value")

    job = app.enqueue(careful)
    start()
    ended(app, job)
    wait_until(lambda: any("dead_lettered" in line["message"] for line in lines()), what="it is logged")
    found = [line for line in lines() if line["level"] == "WARNING"]
    assert [(line["message"], line["error"]) for line in found] == [
        ("check refused: KeyError; stalled", "'no key'"),
        ("attempt failed: ValueError; dead_lettered", "no value"),
    ]
    assert all((line["job_id"], line["kind"], line["queue"], line["worker"]) == (job.id, "careful", "q", "w0") for line in found)


def test_what_happened_is_counted(app: App, start: Starter) -> None:
    @app.handler(policy={"backoff_base": 0})
    def flaky(job: Context) -> None:
        if job.job.attempt == 1:
            raise TransientError("once")

    jobs = app.enqueue_many(flaky, [{}] * 3)
    start()
    for job in jobs:
        ended(app, job)
    metrics = app.ledger.metrics
    wait_until(lambda: metrics.value("holdfast_completed_total", kind="flaky") == 3)
    assert metrics.value("holdfast_claims_total", kind="flaky") == 6
    assert metrics.value("holdfast_retries_total", kind="flaky") == 3
    found = metrics.quantiles("flaky")
    assert found is not None


def test_sinks_of_an_app_are_told_in_order(app: App, start: Starter, tmp_path: Path) -> None:
    told: list[tuple[int, str, str]] = []
    whole = threading.Event()

    def hear(message: Any) -> None:
        data = message.as_dict()["data"]
        told.append((data["job_id"], data["message"], data["to"]))
        if len(told) >= 8:
            whole.set()

    @app.handler()
    def quick() -> None: ...

    app.sink(CallableSink(hear, name="ears", start="beginning"))
    jobs = app.enqueue_many(quick, [{}] * 2)
    start()
    assert whole.wait(30)
    for job in jobs:
        assert [to for id_, _, to in told if id_ == job.id] == ["queued", "claimed", "running", "succeeded"]
    assert [sink.name for sink in app.ledger.sinks()] == ["ears"]
