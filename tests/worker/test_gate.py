"""The gate in handlers: `may_proceed`, and results that are recorded only if the gate allows it."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import App, AsyncContext, Context, HeldJob, JobCancelled, LeaseConflictError, Ledger
from holdfast.errors import GateDenied, HoldfastError, ValidationError
from holdfast.liveness import HealthVerdict
from holdfast.testing import ManualClock, drain
from holdfast.worker.failures import RetryRules, classify
from holdfast.worker.heartbeats import WorkerLeases
from holdfast.worker.runtime import WorkerRuntime
from tests.contract.builders import WINDOW
from tests.worker.conftest import Starter, ended
from tests.worker.fleet import Fleet


class WorkerParts:
    """The parts of a worker without its threads. The test sends the beats."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.ledger = app.ledger
        self.runtime = WorkerRuntime(app.ledger, app.registry, "ada", clock.monotonic)
        self.runtime.serve({"default"})
        self.beater = WorkerLeases(self.runtime, app.ledger, _never)

    def hold(self, *, start: bool = True, **options: Any) -> Context:
        """Claim a new job and return its context."""
        self.ledger.enqueue("work", **options)
        sent = self.runtime.monotonic()
        [job] = self.ledger.claim("ada", start=start)
        context = Context(job, self.runtime.served["work"], self.runtime, 10.0, 60.0, sent)
        self.runtime.hold(context)
        return context


def _never(context: Context) -> None:
    raise AssertionError(f"job {context.job.id}")


@pytest.fixture
def timed(store_url: str, clock: ManualClock) -> Iterator[App]:
    """An app on a manual clock."""
    app = App(store_url, clock=clock)
    yield app
    app.close()


@pytest.fixture
def parts(timed: App, clock: ManualClock) -> WorkerParts:
    @timed.handler("work")
    def work() -> None: ...

    return WorkerParts(timed, clock)


def reason(context: Context) -> str:
    with pytest.raises(GateDenied) as caught:
        context.may_proceed()
    found: str = caught.value.context["reason"]
    return found


# The receipt of an attempt


def test_the_receipt_of_an_attempt_equals_that_of_the_ledger(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold()
    assert context.receipt() == parts.ledger.gate(context.fence)
    clock.advance(11)
    context.progress(3, stage="TASK")
    parts.beater.tick()
    assert context.receipt() == parts.ledger.gate(context.fence)
    clock.advance(1)
    context.beat(progress=4)
    assert context.receipt() == parts.ledger.gate(context.fence)


def test_a_start_is_a_beat(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold(start=False)
    clock.advance(5)
    context.apply_start(parts.ledger.start(context.fence), parts.runtime.monotonic())
    clock.advance(2)
    context.beat()
    found = context.receipt()
    assert found is not None
    assert (found, found.uptime_ms) == (parts.ledger.gate(context.fence), 2_000)


def test_an_attempt_without_answers_to_its_beats_may_not_proceed(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold()
    clock.advance(30)
    with context.may_proceed():
        clock.advance(0.001)
    assert reason(context) == "stale_heartbeat"
    context.beat()
    context.may_proceed()


def test_the_first_progress_is_sent_at_once_when_the_clock_starts_at_zero(parts: WorkerParts, clock: ManualClock) -> None:
    assert clock.monotonic() == 0
    context = parts.hold()
    context.progress(7)
    parts.beater.tick()
    assert parts.ledger.get(context.job.id).progress == 7


def test_entering_the_context_of_may_proceed_checks_again(parts: WorkerParts, clock: ManualClock) -> None:
    passage = parts.hold().may_proceed()
    clock.advance(31)
    with pytest.raises(GateDenied), passage:
        raise AssertionError("inside")


def test_a_step_of_the_wall_clock_is_not_taken_for_silence(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold()
    clock.jump(3_600)
    context.may_proceed()
    clock.jump(-7_200)
    context.may_proceed()


def test_a_stalled_attempt_is_ambiguous_until_it_is_back(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold(policy=WINDOW)
    parts.ledger.stall(context.fence)
    context.beat()
    assert reason(context) == "ambiguous_state"
    clock.advance(11)
    parts.beater.tick()
    context.may_proceed()
    assert context.receipt() == parts.ledger.gate(context.fence)


def test_a_late_answer_does_not_replace_the_newest_receipt(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold()
    late = parts.ledger.heartbeat(context.fence)
    clock.advance(5)
    context.beat()
    newest = context.receipt()
    context.apply_answer(late, 0.0)
    assert context.receipt() == newest


def test_more_attempts_than_allowed_may_not_proceed(parts: WorkerParts) -> None:
    context = parts.hold(policy={"attempts_max": 1})
    second = msgspec.structs.replace(context.job.record, attempt=2)
    context.job = HeldJob(second, context.fence)
    assert reason(context) == "restart_limit_exceeded"


def test_a_lost_lease_and_a_cancel_are_checked_first(parts: WorkerParts, clock: ManualClock) -> None:
    context = parts.hold()
    parts.ledger.cancel(context.job.id)
    context.beat()
    clock.advance(31)
    with pytest.raises(JobCancelled):
        context.may_proceed()
    clock.advance(30)
    with pytest.raises(LeaseConflictError):
        context.may_proceed()
    context.mark_lost()
    assert context.receipt() is None


def test_a_denied_step_is_tried_again_under_any_error_rules() -> None:
    verdict = classify(GateDenied("no", reason="stale_heartbeat"), RetryRules(retry_on=(), fail_on=(HoldfastError,)))
    assert verdict.retryable
    assert (verdict.error["type"], verdict.error["code"]) == ("GateDenied", "gate_denied")


# Handlers with gate=True


def test_a_late_result_is_not_recorded(timed: App, clock: ManualClock) -> None:
    @timed.handler(gate=True)
    def slow(job: Context) -> int:
        if job.job.attempt == 1:
            clock.advance(31)
        return job.job.attempt

    job = timed.enqueue(slow)
    assert drain(timed, limit=1).counts == {"queued": 1}
    failed = timed.ledger.get(job.id)
    assert (failed.last_error["type"], failed.last_error["code"]) == ("GateDenied", "gate_denied")
    assert "succeeded" not in [event.type for event in timed.ledger.events(job.id)]
    drain(timed, advance=True)
    assert timed.ledger.get(job.id).result == 2
    assert timed.ledger.check(job.id) == []


def test_without_the_gate_a_late_result_is_recorded(timed: App, clock: ManualClock) -> None:
    @timed.handler()
    def slow() -> int:
        clock.advance(31)
        return 1

    job = timed.enqueue(slow)
    drain(timed)
    assert timed.ledger.get(job.id).result == 1


def test_a_denied_step_fails_the_attempt(timed: App, clock: ManualClock) -> None:
    @timed.handler(policy=WINDOW)
    def stalled(job: Context) -> None:
        if job.job.attempt == 1:
            timed.ledger.stall(job.fence)
            job.beat()
        job.may_proceed()

    job = timed.enqueue(stalled)
    drain(timed, limit=1)
    assert timed.ledger.get(job.id).last_error["code"] == "gate_denied"


def test_a_result_that_cannot_be_stored_has_its_usual_refusal(timed: App) -> None:
    @timed.handler(gate=True)
    def large() -> str:
        return "x" * 2_000_000

    job = timed.enqueue(large)
    drain(timed)
    letter = timed.ledger.get(job.id).dead_letter
    assert letter is not None
    assert (letter["reason_code"], letter["failure_stage"]) == ("validation_failed", "output")


def test_the_gate_option_is_a_boolean(timed: App) -> None:
    with pytest.raises(ValidationError):
        timed.handler("odd", gate="yes")(lambda: None)  # type: ignore[call-overload]


# Real workers


def test_results_pass_the_gate_of_a_real_worker(app: App, start: Starter) -> None:
    @app.handler(gate=True)
    def plain(job: Context) -> str:
        with job.may_proceed():
            found = job.receipt()
        assert found is not None and found.health_verdict is HealthVerdict.HEALTHY
        return found.run_id

    @app.handler(gate=True, checks=[lambda job: job.may_proceed()])
    async def awaited(job: AsyncContext) -> str:
        await job.beat(stage="on")
        with job.may_proceed():
            found = job.receipt()
        assert found is not None
        assert found == app.ledger.gate(job.fence)
        return found.run_id

    jobs = [app.enqueue(plain), app.enqueue(awaited)]
    start()
    assert [ended(app, job).result for job in jobs] == [f"{job.id}-1" for job in jobs]


@pytest.mark.parametrize("kind", ["passes", "passes_async"])
def test_a_child_process_gets_its_receipt_from_the_ledger(fleet: Fleet, real: Ledger, kind: str) -> None:
    fleet.start("ant")
    job = real.enqueue(kind)
    found = real.wait(job.id, timeout=60)
    assert found.result == f"{job.id}-1"
    assert real.check(job.id) == []
