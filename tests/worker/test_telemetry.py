"""Telemetry of a worker: spans, log lines, counts."""

import io
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import App, AsyncContext, Context, Job, PermanentError, PolicyFields, TransientError
from holdfast.services import CallableSink
from holdfast.telemetry import logs
from holdfast.testing import ManualClock, drain
from holdfast.worker import runtime
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, became, ended

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
def lines(restored_logs: None) -> Callable[[], list[dict[str, Any]]]:
    """The logged lines as JSON."""
    stream = io.StringIO()
    logs.configure(json=True, level="INFO", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_a_trace_continues_in_jobs_that_the_handler_enqueues(app: App, start: Starter, spans: Spans, isolation: str) -> None:
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


def test_log_lines_of_a_handler_have_the_fields_of_its_job(
    app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]
) -> None:
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


def steps(lines: Callable[[], list[dict[str, Any]]], job: Job) -> list[str]:
    """The steps of a job that were logged."""
    return [line["event"] for line in lines() if line.get("job_id") == job.id and "event" in line]


def test_every_step_of_a_job_is_logged(app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]) -> None:
    @app.handler(queue="q", attempts_max=3, policy={"backoff_base": 0})
    def flaky(job: Context) -> None:
        if job.job.attempt == 1:
            raise TransientError("the server said 503")

    job = app.enqueue(flaky)
    start()
    wait_until(lambda: "succeeded" in steps(lines, job), what="it is logged")
    assert steps(lines, job) == ["started", "retried", "started", "succeeded"]
    begun, retried, _, done = [line for line in lines() if "event" in line]
    for line, attempt in ((begun, 1), (retried, 1), (done, 2)):
        found = (line["job_id"], line["kind"], line["queue"], line["attempt"], line["worker"])
        assert found == (job.id, "flaky", "q", attempt, "w0")
    assert (begun["level"], begun["message"]) == ("INFO", f"job {job.id} started")
    assert begun["wait_ms"] >= 0
    assert retried["level"] == "WARNING"
    at = retried["retry_at"][11:19]
    assert retried["message"] == (
        f"job {job.id} failed in attempt 1 of 3 and is tried again at {at}: TransientError: the server said 503"
    )
    assert retried["error"] == "TransientError: the server said 503"
    assert 'raise TransientError("the server said 503")' in retried["exception"]
    assert retried["retry_at"].endswith("Z")
    assert (done["level"], done["message"]) == ("INFO", f"job {job.id} succeeded")
    assert retried["duration_ms"] >= 0 and done["duration_ms"] >= 0


def test_log_lines_of_a_traced_job_have_its_trace_id(
    app: App, start: Starter, spans: Spans, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    @app.handler()
    def traced() -> None:
        logging.getLogger("mine").info("working")

    with tracer.start_as_current_span("request") as request:
        child = app.enqueue(traced)
    alone = app.enqueue(traced)
    start()
    wait_until(lambda: all("succeeded" in steps(lines, job) for job in (child, alone)), what="both are logged")
    of_child = [line["trace_id"] for line in lines() if line.get("job_id") == child.id]
    assert of_child == [f"{request.get_span_context().trace_id:032x}"] * 3
    begun, working, done = [line.get("trace_id") for line in lines() if line.get("job_id") == alone.id]
    assert begun is None
    assert done == working
    assert len(str(done)) == 32


def test_a_failure_is_logged_with_its_traceback(app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]) -> None:
    @app.handler(attempts_max=1)
    def broken() -> None:
        raise ValueError("no value\nat all")

    @app.handler()
    def refused() -> None:
        raise PermanentError("no such page")

    dead, failed = app.enqueue(broken), app.enqueue(refused)
    start()
    wait_until(lambda: "dead_lettered" in steps(lines, dead) and "failed" in steps(lines, failed), what="both are logged")
    found = {line["event"]: line for line in lines() if "event" in line}
    assert found["dead_lettered"]["message"] == f"job {dead.id} dead-lettered (exhausted_retries): ValueError: no value"
    assert 'raise ValueError("no value\\nat all")' in found["dead_lettered"]["exception"]
    assert found["failed"]["message"] == f"job {failed.id} failed: PermanentError: no such page"
    assert 'raise PermanentError("no such page")' in found["failed"]["exception"]


def test_a_refused_check_is_logged(app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]) -> None:
    def ready(job: Context) -> None:
        if job.job.attempt == 1:
            raise KeyError("no key")

    @app.handler(checks=ready, queue="q", attempts_max=2, policy={"backoff_base": 0})
    def careful() -> None: ...

    job = app.enqueue(careful)
    start()
    wait_until(lambda: "succeeded" in steps(lines, job), what="it is logged")
    assert steps(lines, job) == ["stalled", "started", "succeeded"]
    refused = next(line for line in lines() if line.get("event") == "stalled")
    assert refused["message"] == f"job {job.id} refused by a check: KeyError: 'no key'"


def test_a_retry_on_another_day_is_logged_with_its_date(
    store_url: str, clock: ManualClock, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    """Released attempts are not counted, and on a manual clock no time passes."""
    app = App(store_url, clock=clock)

    @app.handler(attempts_max=3)
    def limited(job: Context) -> None:
        if job.job.attempt == 1:
            job.request_release()
            job.check_cancelled()
        raise TransientError("slow down", retry_after="2d")

    job = app.enqueue(limited)
    drain(app)
    at = app.ledger.get(job.id).available_at
    app.close()
    found = next(line for line in lines() if line.get("event") == "retried")
    assert found["message"].startswith(f"job {job.id} failed in attempt 2 of 4 and is tried again at {at:%Y-%m-%d %H:%M:%S}: ")
    assert found["duration_ms"] == 0


@pytest.mark.parametrize("way", ["hard", "past its grace"])
def test_a_cancel_of_a_running_handler_is_logged_once(
    app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]], way: str
) -> None:
    quick: PolicyFields = {"heartbeat_interval": "1s", "missed_beats_max": 1, "lease_ttl": "1s", "cancel_grace": "1s"}

    @app.handler(policy=quick)
    def deaf(job: Context) -> None:
        wait_until(lambda: job.lost)
        job.check_cancelled()

    job = app.enqueue(deaf)
    worker = start()
    became(app, job, "running")
    app.ledger.cancel(job.id, hard=way == "hard", reason="enough", actor="ada")
    wait_until(lambda: "cancelled" in steps(lines, job), what="it is logged")
    worker.close()
    assert steps(lines, job) == ["started", "cancelled"]
    found = next(line for line in lines() if line.get("event") == "cancelled")
    assert (found["level"], found["message"]) == ("INFO", f"job {job.id} cancelled by client:ada: enough")
    assert (found["actor"], found["reason"], found["worker"]) == ("client:ada", "enough", "w0")
    assert not [line for line in lines() if "lease lost" in line["message"] or line["level"] == "WARNING"]


def test_a_lost_lease_is_logged_once(app: App, start: Starter, lines: Callable[[], list[dict[str, Any]]]) -> None:
    went = threading.Event()

    @app.handler(policy={"heartbeat_interval": "1s", "missed_beats_max": 1, "lease_ttl": "1s"})
    def robbed(job: Context) -> None:
        app.ledger.stall(job.fence, reason="WORKER_ERROR")
        app.ledger.dead_letter(job.job.id, reason_code="policy_violation", actor="operator:ada")
        wait_until(lambda: job.lost)
        went.set()
        job.check_cancelled()

    app.enqueue(robbed)
    worker = start()
    assert went.wait(30)
    worker.close()
    [lost] = [line for line in lines() if "lease lost" in line["message"]]
    assert (lost["level"], lost["attempt"], lost["kind"]) == ("WARNING", 1, "robbed")


def test_a_stall_found_by_the_sweep_is_logged(
    store_url: str, clock: ManualClock, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with holdfast.open(store_url, clock=clock) as ledger:
        ledger.set_policy("index", attempts_max=2)
        job = ledger.enqueue("index")
        for _ in range(2):
            ledger.claim("w9", start=True)
            ledger.sweep()
            clock.advance(31.04)
            ledger.sweep()
            clock.advance(60)
    stalled, again, dead = [line for line in lines() if line.get("job_id") == job.id]
    assert (stalled["event"], stalled["level"], stalled["worker"]) == ("stalled", "WARNING", "w9")
    assert stalled["message"] == f"job {job.id} stalled: NO_HEARTBEAT, silent for 31 s"
    assert (stalled["kind"], stalled["attempt"], stalled["silent_ms"], stalled["duration_ms"]) == ("index", 1, 31_040, 31_040)
    assert (again["event"], again["attempt"]) == ("stalled", 2)
    assert (dead["event"], dead["message"]) == (
        "dead_lettered",
        f"job {job.id} dead-lettered (infrastructure_failure): stalled: NO_HEARTBEAT",
    )


def test_a_worker_without_log_lines_checks_the_level_once_a_batch(
    app: App, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain of quick jobs must not pay for lines that are not written."""
    asked: list[int] = []
    enabled = runtime.log.isEnabledFor

    def is_enabled(level: int) -> bool:
        asked.append(level)
        return enabled(level)

    monkeypatch.setattr(runtime.log, "isEnabledFor", is_enabled)
    runtime.log.setLevel("WARNING")

    @app.handler()
    def quick() -> None: ...

    try:
        jobs = app.enqueue_many(quick, [{}] * 300)
        start()
        for job in jobs:
            ended(app, job)
    finally:
        runtime.log.setLevel(logging.NOTSET)
    assert len(asked) < len(jobs)


def test_outcomes_are_counted(app: App, start: Starter) -> None:
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
    assert {outcome for _, outcome in metrics.read().timings["holdfast_run_seconds"]} == {"retried", "succeeded"}


def test_sinks_of_an_app_get_messages_in_order(app: App, start: Starter, tmp_path: Path) -> None:
    delivered: list[tuple[int, str, str]] = []
    whole = threading.Event()

    def hear(message: Any) -> None:
        data = message.as_dict()["data"]
        delivered.append((data["job_id"], data["message"], data["to"]))
        if len(delivered) >= 8:
            whole.set()

    @app.handler()
    def quick() -> None: ...

    app.sink(CallableSink(hear, name="sink", start="beginning"))
    jobs = app.enqueue_many(quick, [{}] * 2)
    start()
    assert whole.wait(30)
    for job in jobs:
        assert [to for id_, _, to in delivered if id_ == job.id] == ["queued", "claimed", "running", "succeeded"]
    assert [sink.name for sink in app.ledger.sinks()] == ["sink"]
