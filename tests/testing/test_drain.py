"""A drain runs an app's jobs as a worker would, in the calling thread."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, AsyncContext, Context, PermanentError, TransientError, ValidationError
from holdfast.errors import HoldfastError, JobCancelled, LeaseConflictError, LimitExceeded
from holdfast.testing import ManualClock, Run, drain


def refused(kind: type[HoldfastError], what: str) -> Any:
    return pytest.raises(kind, match=what)


# Jobs that are run


def test_ready_jobs_are_run_in_the_calling_thread_and_returned(app: App) -> None:
    @app.handler()
    def double(job: Context, n: int) -> list[Any]:
        return [2 * n, threading.current_thread().name]

    job = app.enqueue(double, n=4)
    ran = drain(app)
    assert ran.runs == (Run(job.id, "double", app.ledger.get(job.id).status),)
    assert ran.runs == ((job.id, "double", "succeeded"),)
    assert (ran.counts, ran.errors) == ({"succeeded": 1}, ())
    assert app.ledger.get(job.id).result == [8, threading.current_thread().name]
    assert [event.type for event in app.ledger.events(job.id)] == ["enqueued", "claimed", "started", "succeeded"]
    assert drain(app).runs == ()


def test_jobs_enqueued_by_handlers_are_run(app: App) -> None:
    @app.handler()
    def count_down(job: Context, n: int) -> None:
        if n:
            job.enqueue(count_down, n=n - 1)

    app.enqueue(count_down, n=3)
    assert drain(app).counts == {"succeeded": 4}


def test_claim_order_is_kept(app: App) -> None:
    order: list[str] = []

    @app.handler(queue="a")
    def first(name: str) -> None:
        order.append(name)

    @app.handler(queue="b", checks=lambda job: True)
    def second(name: str) -> None:
        order.append(name)

    app.enqueue(second, name="b1")
    app.enqueue(first, name="a1")
    app.options(priority=5).enqueue(first, name="a2")
    drain(app)
    assert order == ["a2", "a1", "b1"]
    app.enqueue(second, name="b2")
    app.enqueue(first, name="a3")
    drain(app, queues=["b"])
    assert order[3:] == ["b2"]
    drain(app, queues=["b", "a"])
    assert order[4:] == ["a3"]


def test_a_kind_without_a_handler_is_not_run(app: App) -> None:
    @app.handler()
    def known() -> None: ...

    unserved = app.ledger.enqueue("unserved")
    assert drain(app).runs == ()
    assert app.ledger.get(unserved.id).rev == 1
    with refused(ValidationError, "names no queue"):
        drain(app, queues=[])


def test_a_queue_that_no_handler_declares_is_drained(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.handler()
    def known() -> None: ...

    job = app.options(queue="slow").enqueue(known)
    assert drain(app).runs == ()
    assert drain(app, queues=["slow"]).runs == ((job.id, "known", "succeeded"),)
    assert [line.getMessage() for line in caplog.records if line.levelname == "WARNING"] == [
        "no handler declares the queue slow, only default: jobs are there only if they were enqueued with that queue"
    ]


def module_level(job: Context) -> str:
    return threading.current_thread().name


def test_handlers_for_child_processes_run_in_the_calling_thread(app: App) -> None:
    app.handler(isolation="process")(module_level)
    job = app.enqueue(module_level)
    drain(app)
    assert app.ledger.get(job.id).result == threading.current_thread().name


def test_a_handler_declares_its_policy(app: App) -> None:
    @app.handler(lease_ttl="90s", attempts_max=7)
    def declared(job: Context) -> int | None:
        return job.job.attempts_max

    job = app.enqueue(declared)
    drain(app)
    assert app.ledger.get(job.id).result == 7


# Async


def test_async_handlers_run_on_the_loop_of_the_drain(app: App) -> None:
    before = set(threading.enumerate())
    threads: set[threading.Thread] = set()

    @app.handler(checks=lambda job: True)
    async def sleepy(job: AsyncContext, n: int) -> list[Any]:
        await asyncio.sleep(0)
        await job.beat(stage="half")
        await job.checkpoint({"n": n})
        threads.update(threading.enumerate())
        return [n, threading.current_thread().name]

    jobs = app.enqueue_many(sleepy, [{"n": n} for n in range(3)])
    drain(app)
    assert [app.ledger.get(job.id).result for job in jobs] == [[n, threading.current_thread().name] for n in range(3)]
    assert app.ledger.get(jobs[0].id).checkpoint == {"n": 0}
    # Only the store's own listener thread may exist.
    assert [thread.name for thread in threads - before if not thread.name.startswith("holdfast-notify")] == []


def test_tasks_left_by_an_async_handler_end_with_the_drain(app: App) -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    tasks: list[Any] = []

    @app.handler()
    async def leaving() -> None:
        tasks.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    app.enqueue(leaving)
    assert drain(app).counts == {"succeeded": 1}
    assert ended == ["cancelled"]


def test_a_drain_within_a_running_loop_is_refused(app: App) -> None:
    @app.handler()
    async def quick() -> None: ...

    job = app.enqueue(quick)

    async def wrong() -> None:
        drain(app)

    async def right() -> Any:
        return await asyncio.to_thread(drain, app)

    with refused(ValidationError, "asyncio.to_thread"):
        asyncio.run(wrong())
    assert app.ledger.get(job.id).rev == 1
    assert asyncio.run(right()).counts == {"succeeded": 1}


# Outcomes


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TransientError("again"), "queued"),
        (OSError("network"), "queued"),
        (SystemExit(3), "queued"),
        (PermanentError("never"), "failed"),
        (ValidationError("bad"), "dead_lettered"),
        (KeyError("mine"), "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_errors_have_the_same_effect_as_in_a_worker(app: App, error: BaseException, status: str) -> None:
    @app.handler(fail_on=KeyError)
    def wrong() -> None:
        raise error

    job = app.enqueue(wrong)
    ran = drain(app)
    assert ran.runs == ((job.id, "wrong", status),)
    assert ran.errors == (error,)
    assert "in wrong" in app.ledger.get(job.id).last_error["traceback"]


WRONG_CALLS: dict[str, Callable[[App, Context], Any]] = {
    "checkpoint": lambda app, job: job.checkpoint({1}),
    "a child": lambda app, job: job.enqueue("child", n="x"),
    "the app": lambda app, job: app.enqueue("child", m=1),
}


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_to_holdfast_is_not_treated_as_bad_input(app: App, call: Callable[[App, Context], Any]) -> None:
    @app.handler()
    def child(n: int) -> None: ...

    @app.handler()
    def buggy(job: Context) -> None:
        call(app, job)

    @app.handler(fail_on=ValidationError)
    def strict(job: Context) -> None:
        call(app, job)

    @app.handler()
    async def awaited(job: AsyncContext) -> None:
        found = call(app, job)
        if asyncio.iscoroutine(found):
            await found

    jobs = [app.enqueue(handler) for handler in (buggy, strict, awaited)]
    drain(app)
    again, failed, later = (app.ledger.get(job.id) for job in jobs)
    for job in (again, later):
        assert (job.status, job.last_error["type"]) == ("queued", "ValidationError")
        assert [event.reason for event in app.ledger.events(job.id, types=["stalled"])] == ["TRANSIENT_ERROR"]
    assert (failed.status, failed.reason_code, failed.failure_stage) == ("failed", None, "exec")


def test_bad_input_found_by_a_check_is_treated_as_bad_input(app: App) -> None:
    """Also after a successful call to Holdfast, and with an error of Holdfast as its cause."""

    @app.handler()
    def careful(job: Context) -> None:
        try:
            job.checkpoint({1})
        except ValidationError as error:
            raise ValidationError("not a number") from error

    job = app.enqueue(careful)
    drain(app)
    found = app.ledger.get(job.id)
    assert (found.status, found.reason_code, found.failure_stage) == ("dead_lettered", "validation_failed", "input")


def test_checks_and_validators_are_called(app: App) -> None:
    @app.handler(validators=lambda job, result: result > 0)
    def positive(n: int) -> int:
        return n

    @app.handler(checks=lambda job: job.job.attempt > 1)
    def careful(job: Context) -> int:
        return job.job.attempt

    app.enqueue_many(positive, [{"n": 1}, {"n": -1}])
    job = app.enqueue(careful)
    assert drain(app, advance=True).counts == {"succeeded": 2, "dead_lettered": 1, "stalled": 1}
    assert app.ledger.get(job.id).result == 2


def test_checks_of_a_gated_handler_are_called_once(app: App) -> None:
    shown: list[object] = []

    @app.handler(gate=True, validators=lambda job, result: shown.append(job))
    def gated() -> int:
        return 1

    app.enqueue(gated)
    assert drain(app).counts == {"succeeded": 1}
    assert [type(job) for job in shown] == [Context]


def test_raise_errors_raises_what_the_handler_raised(app: App) -> None:
    @app.handler()
    def wrong() -> None:
        raise OSError("where it broke")

    @app.handler()
    def fine() -> None: ...

    job, later = app.enqueue(wrong), app.enqueue(fine)
    with pytest.raises(OSError, match="where it broke") as caught:
        drain(app, raise_errors=True)
    assert [entry.name for entry in caught.traceback][-1] == "wrong"
    assert (app.ledger.get(job.id).status, app.ledger.get(later.id).status) == ("queued", "queued")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.fail.Exception])
def test_exceptions_that_end_a_test_end_the_drain(app: App, kind: type[BaseException]) -> None:
    @app.handler()
    def wrong() -> None:
        raise kind

    job = app.enqueue(wrong)
    with pytest.raises(kind):
        drain(app)
    assert app.ledger.get(job.id).status == "queued"


# Time


def test_a_delay_is_skipped_only_on_request(app: App, clock: ManualClock) -> None:
    @app.handler()
    def later() -> None: ...

    app.options(delay="1h").enqueue(later)
    began = clock.now()
    assert drain(app).runs == ()
    assert clock.now() == began
    assert drain(app, advance=True).counts == {"succeeded": 1}
    assert clock.now() - began == timedelta(hours=1)


def test_backoffs_are_skipped_by_advancing_the_clock(app: App, clock: ManualClock) -> None:
    @app.handler(attempts_max=4, policy={"backoff_base": "10s"})
    def flaky(job: Context) -> int:
        if job.job.attempt < 4:
            raise OSError("not yet")
        return job.job.attempt

    job = app.enqueue(flaky)
    began = clock.now()
    ran = drain(app, advance=True)
    assert [run.status for run in ran.runs] == ["queued", "queued", "queued", "succeeded"]
    assert clock.now() - began == timedelta(seconds=10 + 20 + 40)
    assert app.ledger.get(job.id).result == 4


def test_a_dead_workers_job_is_swept_and_run(app: App, clock: ManualClock) -> None:
    @app.handler()
    def work(job: Context) -> int:
        return job.job.attempt

    job = app.options(policy={"backoff_base": 0}).enqueue(work)
    app.ledger.claim("dead", start=True)
    assert drain(app).runs == ()
    clock.advance(31)
    assert drain(app).runs == ((job.id, "work", "succeeded"),)


def test_the_drain_advances_the_clock_up_to_a_time(app: App, clock: ManualClock) -> None:
    @app.handler()
    def hourly(job: Context) -> None:
        app.options(delay="1h").enqueue(hourly)

    app.enqueue(hourly)
    began = clock.now()
    assert len(drain(app, advance=True, until=began + timedelta(hours=5)).runs) == 6
    assert clock.now() == began + timedelta(hours=5)


def test_a_condition_ends_the_drain(app: App) -> None:
    done: list[int] = []

    @app.handler()
    def work(n: int) -> None:
        done.append(n)

    app.enqueue_many(work, [{"n": n} for n in range(5)])
    drain(app, until=lambda: 2 in done)
    assert done == [0, 1, 2]
    assert len(drain(app, limit=1).runs) == 1
    assert drain(app, limit=0).runs == ()
    assert done == [0, 1, 2, 3]


def test_jobs_that_keep_coming_back_are_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.testing.inline_worker.RUNS_MAX", 20)

    @app.handler()
    def forever() -> None:
        app.enqueue(forever)

    @app.handler()
    def once() -> None: ...

    app.enqueue(once)
    app.enqueue(forever)
    with refused(LimitExceeded, r"20 runs: forever \(19\), once \(1\)"):
        drain(app)


def test_only_a_manual_clock_can_be_advanced(store_url: str) -> None:
    app = App(store_url)
    with refused(ValidationError, "ManualClock"):
        drain(app, advance=True)


def test_a_handler_that_takes_too_long_is_timed_out(app: App, clock: ManualClock) -> None:
    @app.handler(timeout="5s", attempts_max=1)
    def slow() -> None:
        clock.advance(6)

    job = app.enqueue(slow)
    assert drain(app).counts == {"dead_lettered": 1}
    assert app.ledger.get(job.id).last_error == {"type": "TimeoutError", "message": "took longer than 5 s"}


# The context of a handler


def test_progress_is_recorded(app: App) -> None:
    @app.handler()
    def step(job: Context) -> None:
        job.progress(3, stage="sorting")

    job = app.enqueue(step)
    drain(app)
    found = app.ledger.get(job.id)
    assert (found.progress, found.stage) == (3, "sorting")


def test_a_lease_is_renewed_while_a_handler_runs(app: App, clock: ManualClock) -> None:
    @app.handler()
    def patient(job: Context) -> str:
        clock.advance(600)
        with job.may_proceed():
            return "still ours"

    job = app.enqueue(patient)
    assert drain(app).counts == {"succeeded": 1}
    assert app.ledger.get(job.id).attempt == 1


@pytest.mark.parametrize("ask", [lambda job: job.check_cancelled(), lambda job: job.may_proceed()])
def test_a_soft_cancel_is_noticed(app: App, ask: Callable[[Context], Any]) -> None:
    @app.handler()
    def polite(job: Context) -> None:
        app.ledger.cancel(job.job.id)
        assert job.cancelled
        with pytest.raises(JobCancelled, match="it was cancelled") as caught:
            ask(job)
        raise caught.value

    app.enqueue(polite)
    ran = drain(app, raise_errors=True)
    assert (ran.counts, ran.errors) == ({"cancelled": 1}, ())


@pytest.mark.parametrize("stolen", [False, True], ids=["cancelled", "stolen"])
def test_a_lost_lease_is_noticed(app: App, clock: ManualClock, stolen: bool) -> None:
    @app.handler(policy={"backoff_base": 0})
    def unlucky(job: Context) -> None:
        if stolen:
            clock.advance(31)
            app.ledger.sweep()
        else:
            app.ledger.cancel(job.job.id, hard=True)
        with pytest.raises(LeaseConflictError):
            job.check_cancelled()
        assert job.lost

    job = app.enqueue(unlucky)
    drain(app, limit=1)
    assert app.ledger.get(job.id).status == ("queued" if stolen else "cancelled")
