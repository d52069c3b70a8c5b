"""Leases are renewed while handlers run, and handlers learn when they must stop."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    App,
    AsyncContext,
    Context,
    JobCancelled,
    LeaseConflictError,
    PermanentError,
    PolicyFields,
    TransientError,
    ValidationError,
)
from holdfast.errors import InvalidTransition
from holdfast.worker import heartbeats
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, became, dead, ended

TIGHT: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "backoff_base": 0, "cancel_grace": 60}


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "GRACE_SECONDS", 0.1)


def test_beats_keep_a_lease_that_is_shorter_than_the_work(app: App, start: Starter) -> None:
    @app.handler(policy=TIGHT)
    def slow(job: Context) -> int:
        time.sleep(2.5)
        job.may_proceed()
        return job.job.attempt

    job = app.enqueue(slow)
    start()
    start()
    assert ended(app, job).result == 1
    assert len(app.ledger.events(job.id, types=["heartbeat"])) >= 3


def test_beats_of_many_leases_share_a_transaction(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler(policy=TIGHT)
    def hold() -> None:
        free.wait(20)

    jobs = app.enqueue_many(hold, [{}] * 20)
    start(threads=20)
    wait_until(lambda: all(app.ledger.events(job.id, types=["heartbeat"]) for job in jobs))
    free.set()
    for job in jobs:
        ended(app, job)
    times = [app.ledger.events(job.id, types=["heartbeat"])[0].received_at for job in jobs]
    assert len(set(times)) < len(jobs)


def test_progress_is_sent_with_the_heartbeats(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler()
    def steps(job: Context) -> None:
        for done in range(100):
            job.progress(done, stage="counting")
        free.wait(20)

    job = app.enqueue(steps)
    start()
    wait_until(lambda: app.ledger.get(job.id).progress == 99)
    assert app.ledger.get(job.id).stage == "counting"
    assert len(app.ledger.events(job.id, types=["heartbeat"])) < 20, "each call of progress() was a beat"
    free.set()
    ended(app, job)


@pytest.mark.parametrize("kind", ["thread", "loop"])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "succeeded"),
        (PermanentError("no"), "failed"),
        (ValidationError("no"), "dead_lettered"),
        (TransientError("no"), "queued"),
    ],
    ids=["success", "failure", "dead letter", "retry"],
)
def test_the_last_progress_is_recorded_with_the_outcome(
    app: App, start: Starter, kind: str, error: Exception | None, status: str
) -> None:
    def said(job: Context) -> None:
        for done in (10, 50, 100):
            job.progress(done, stage=f"at {done}")
        if error is not None:
            raise error

    async def said_on_the_loop(job: Context) -> None:
        said(job)

    register = app.handler(policy={"backoff_base": 60})
    job = app.enqueue(register(said) if kind == "thread" else register(said_on_the_loop))
    start()
    found = wait_until(lambda: found if (found := app.ledger.get(job.id)).status == status and found.rev > 2 else None)
    assert found is not None
    assert (found.progress, found.stage) == (100, "at 100")
    assert app.ledger.check(job.id) == []


def test_the_last_progress_is_recorded_with_a_gated_outcome(app: App, start: Starter) -> None:
    @app.handler(gate=True)
    def gated(job: Context) -> None:
        job.progress(100, stage="done")

    job = app.enqueue(gated)
    start()
    found = ended(app, job)
    assert (found.status, found.progress, found.stage) == ("succeeded", 100, "done")


def test_a_beat_replaces_earlier_unsent_progress(app: App, start: Starter) -> None:
    @app.handler()
    def both(job: Context) -> None:
        job.progress(1, stage="first")
        job.beat(progress=2)

    job = app.enqueue(both)
    start()
    found = ended(app, job)
    assert (found.progress, found.stage) == (2, "first")


def test_a_short_handler_without_progress_records_no_beat(app: App, start: Starter) -> None:
    @app.handler()
    def silent(job: Context) -> None:
        pass

    job = app.enqueue(silent)
    start()
    ended(app, job)
    assert app.ledger.events(job.id, types=["heartbeat"]) == []


def test_beating_without_progress_is_a_stall(app: App, start: Starter) -> None:
    """The job has heartbeats but no progress."""
    noticed: list[bool] = []

    @app.handler(policy={**TIGHT, "progress_timeout": 1, "attempts_max": 1})
    def stuck(job: Context) -> None:
        noticed.append(wait_until(lambda: job.cancelled))

    job = app.enqueue(stuck)
    start()
    assert dead(ended(app, job))["reason_code"] == "timeout"
    assert app.ledger.events(job.id, types=["stalled"])[0].reason == "NO_PROGRESS"
    wait_until(lambda: noticed == [True])


def test_progress_prevents_a_stall(app: App, start: Starter) -> None:
    @app.handler(policy={**TIGHT, "progress_timeout": 1})
    def moving(job: Context) -> int:
        for done in range(25):
            job.progress(done)
            time.sleep(0.1)
        return job.job.attempt

    job = app.enqueue(moving)
    start()
    assert ended(app, job).result == 1


# Cancelling


def test_a_soft_cancel_is_seen_at_the_next_beat(app: App, start: Starter) -> None:
    @app.handler(policy=TIGHT)
    def patient(job: Context) -> None:
        while not job.cancelled:
            time.sleep(0.01)
        job.checkpoint({"seen": True})
        job.check_cancelled()

    job = app.enqueue(patient)
    start()
    became(app, job, "running")
    app.ledger.cancel(job.id, reason="enough")
    found = ended(app, job)
    assert (found.status, found.cancel_reason, found.checkpoint) == ("cancelled", "enough", {"seen": True})
    assert found.last_owner == "w0"


def test_a_handler_may_finish_after_it_was_asked_to_stop(app: App, start: Starter) -> None:
    @app.handler(policy=TIGHT)
    def almost(job: Context) -> str:
        wait_until(lambda: job.cancelled)
        return "done"

    job = app.enqueue(almost)
    start()
    became(app, job, "running")
    app.ledger.cancel(job.id)
    assert (ended(app, job).status, app.ledger.get(job.id).result) == ("succeeded", "done")


def test_irreversible_steps_are_refused_after_a_cancel(app: App, start: Starter) -> None:
    @app.handler(policy=TIGHT)
    def careful(job: Context) -> None:
        wait_until(lambda: job.cancelled)
        with job.may_proceed():
            raise AssertionError

    job = app.enqueue(careful)
    start()
    became(app, job, "running")
    app.ledger.cancel(job.id)
    assert ended(app, job).status == "cancelled"


def test_a_hard_cancel_stops_side_effects_of_a_thread(app: App, start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    free = threading.Event()

    @app.handler(policy=TIGHT)
    def stubborn(job: Context) -> str:
        wait_until(lambda: job.lost)
        with pytest.raises(LeaseConflictError):
            job.may_proceed()
        seen.append(job.cancelled)
        free.wait(20)
        return "too late"

    job = app.enqueue(stubborn)
    worker = start(threads=1)
    became(app, job, "running")
    app.ledger.cancel(job.id, hard=True)
    wait_until(lambda: seen == [True])
    wait_until(lambda: "abandoned a handler" in caplog.text)
    assert worker.runtime.abandoned == 1
    free.set()
    wait_until(lambda: worker.runtime.abandoned == 0)
    found = app.ledger.get(job.id)
    assert (found.status, found.result, app.ledger.check(job.id)) == ("cancelled", None, [])


def test_an_abandoned_thread_is_replaced(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler(policy=TIGHT)
    def stubborn(job: Context) -> None:
        free.wait(20)

    @app.handler()
    def other() -> str:
        return "served"

    job = app.enqueue(stubborn)
    worker = start(threads=1)
    became(app, job, "running")
    app.ledger.cancel(job.id, hard=True)
    assert ended(app, app.enqueue(other)).result == "served"
    assert worker.runtime.abandoned == 1
    free.set()


def test_a_hard_cancel_is_an_exception_on_the_loop(app: App, start: Starter) -> None:
    seen: list[str] = []

    @app.handler(policy=TIGHT)
    async def sleepy(job: AsyncContext) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    job = app.enqueue(sleepy)
    start()
    became(app, job, "running")
    app.ledger.cancel(job.id, hard=True)
    wait_until(lambda: seen == ["cancelled"])
    assert ended(app, job).status == "cancelled"


@pytest.mark.parametrize("hard", [False, True])
def test_a_cancel_that_races_completion_leaves_one_outcome(app: App, start: Starter, hard: bool) -> None:
    @app.handler()
    def quick() -> int:
        return 1

    jobs = app.enqueue_many(quick, [{}] * 100)
    start()
    outcomes = set()
    for job in jobs:
        with contextlib.suppress(InvalidTransition):
            app.ledger.cancel(job.id, hard=hard)
    for job in jobs:
        found = ended(app, job)
        outcomes.add(str(found.status))
        ends = [
            event
            for event in app.ledger.events(job.id)
            if event.to_status in ("succeeded", "cancelled") and event.from_status != event.to_status
        ]
        assert len(ends) == 1
    assert outcomes <= {"succeeded", "cancelled"}


# Time limits


def test_a_thread_that_takes_too_long_is_cancelled_fenced_and_abandoned(app: App, start: Starter) -> None:
    noticed: list[bool] = []
    free = threading.Event()

    @app.handler(timeout="200ms", attempts_max=1)
    def endless(job: Context) -> str:
        noticed.append(wait_until(lambda: job.cancelled))
        free.wait(20)
        return "too late"

    job = app.enqueue(endless)
    worker = start(threads=1)
    found = ended(app, job)
    assert (found.reason_code, found.last_error["type"]) == ("timeout", "TimeoutError")
    wait_until(lambda: noticed == [True])
    wait_until(lambda: worker.runtime.abandoned == 1)
    free.set()


def test_a_task_that_takes_too_long_is_cancelled(app: App, start: Starter) -> None:
    @app.handler(timeout="200ms", policy={"backoff_base": 0})
    async def endless(job: AsyncContext) -> int:
        if job.job.attempt == 1:
            await asyncio.sleep(60)
        return job.job.attempt

    job = app.enqueue(endless)
    start()
    assert ended(app, job).result == 2


def test_a_check_that_hangs_is_bounded_by_the_timeout(app: App, start: Starter) -> None:
    free = threading.Event()

    def hang(job: Context) -> None:
        if job.job.attempt == 1:
            free.wait(20)

    @app.handler(timeout="200ms", checks=hang, policy={"backoff_base": 0})
    def checked(job: Context) -> int:
        return job.job.attempt

    job = app.enqueue(checked)
    start()
    assert ended(app, job).result == 2
    assert app.ledger.get(job.id).last_error["message"] == "its checks took too long"
    [stalled] = app.ledger.events(job.id, types=["stalled"])
    assert (stalled.payload["reason_code"], stalled.payload["failure_stage"]) == ("timeout", "input")
    free.set()


# Losing a lease


def test_a_worker_that_lost_its_job_records_nothing(app: App, start: Starter) -> None:
    """Its beats do not arrive, and another holder has finished the job."""
    free = threading.Event()
    seen: list[str] = []

    @app.handler(policy={**TIGHT, "heartbeat_interval": 1})
    def job_of_two(job: Context) -> str:
        if job.job.attempt == 1:
            free.wait(20)
            try:
                job.may_proceed()
            except LeaseConflictError as error:
                seen.append(error.code)
        return f"attempt {job.job.attempt}"

    job = app.enqueue(job_of_two)
    worker = start()
    became(app, job, "running")
    wait_until(lambda: worker.runtime.leases)
    worker.runtime.leases.clear()  # its heartbeats end
    found = ended(app, job)
    assert found.result == "attempt 2"
    free.set()
    wait_until(lambda: seen == ["lease_conflict"])
    assert app.ledger.get(job.id).rev == found.rev


def test_a_stalled_job_is_resumed_by_its_holders_beat(app: App, start: Starter) -> None:
    """The ledger has stalled the job of a slow holder, and no other worker has claimed it."""
    free = threading.Event()

    @app.handler(policy={**TIGHT, "resume_window": "60s"})
    def thought_dead(job: Context) -> int:
        free.wait(20)
        return job.job.attempt

    job = app.enqueue(thought_dead)
    worker = start()
    context = wait_until(lambda: worker.runtime.leases.pop(job.id, None))
    became(app, job, "stalled")
    assert context is not None
    worker.runtime.hold(context)
    became(app, job, "running")
    free.set()
    assert ended(app, job).result == 1
    assert [event.type for event in app.ledger.events(job.id) if event.type != "heartbeat"] == [
        "enqueued", "claimed", "started", "stalled", "resumed", "succeeded",
    ]  # fmt: skip


# Stopping


def test_the_first_stop_lets_jobs_finish_and_releases_the_rest(app: App, start: Starter) -> None:
    entered, free = threading.Event(), threading.Event()

    @app.handler()
    def slow() -> str:
        entered.set()
        free.wait(20)
        return "finished"

    jobs = app.enqueue_many(slow, [{}] * 5)
    worker = start(threads=1, shutdown_timeout="20s")
    assert entered.wait(20)
    worker.stop()
    closing = threading.Thread(target=worker.close)
    closing.start()
    wait_until(lambda: app.ledger.counts()["default"].get("queued", 0) == 4)
    free.set()
    closing.join()
    assert app.ledger.counts()["default"] == {"succeeded": 1, "queued": 4}
    assert app.ledger.workers() == []
    for job in jobs:
        assert app.ledger.check(job.id) == []


def test_the_second_stop_releases_all_jobs_at_once(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler()
    def slow(job: Context) -> None:
        free.wait(20)

    job = app.enqueue(slow)
    worker = start(shutdown_timeout="1h")
    became(app, job, "running")
    worker.stop()
    worker.stop()
    worker.close()
    found = app.ledger.get(job.id)
    assert (found.status, found.releases) == ("queued", 1)
    free.set()


def test_a_handler_may_leave_when_its_worker_stops(app: App, start: Starter) -> None:
    @app.handler()
    def polite(job: Context) -> None:
        wait_until(lambda: job.cancelled)
        job.check_cancelled()

    job = app.enqueue(polite)
    worker = start(shutdown_timeout="100ms")
    became(app, job, "running")
    worker.close()
    found = app.ledger.get(job.id)
    assert (found.status, found.releases) == ("queued", 1)


def test_a_lease_error_of_another_job_is_an_ordinary_error(app: App, start: Starter) -> None:
    @app.handler(attempts_max=1)
    def meddler() -> None:
        raise LeaseConflictError("some other job", job_id=12345)

    job = app.enqueue(meddler)
    start()
    assert ended(app, job).status == "dead_lettered"


def test_a_job_of_a_handler_that_raises_cancelled_itself_is_released(app: App, start: Starter) -> None:
    runs: list[int] = []

    @app.handler()
    def pretender(job: Context) -> str:
        runs.append(job.job.attempt)
        if job.job.attempt == 1:
            raise JobCancelled("not requested")
        return "second"

    job = app.enqueue(pretender)
    start()
    assert ended(app, job).result == "second"
    assert app.ledger.get(job.id).releases == 1


def test_a_released_task_may_clean_up(app: App, start: Starter) -> None:
    begun, cleared = threading.Event(), threading.Event()

    @app.handler()
    async def endless() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleared.set()

    job = app.enqueue(endless)
    worker = start()
    wait_until(begun.is_set)
    worker.close()
    assert app.ledger.get(job.id).status == "queued"
    assert cleared.is_set()


def test_the_event_loop_of_a_worker_leaves_nothing_open(app: App, start: Starter) -> None:
    @app.handler()
    async def short() -> None: ...

    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    counts = []
    for _ in range(6):
        job = app.enqueue(short)
        worker = start()
        became(app, job, "succeeded")
        worker.close()
        counts.append(opened())
    # The connections of the app itself may be one more or less. A worker that left something open would leave it each time.
    assert counts[5] - counts[1] < 4
