"""A worker runs handlers, and the ledger records their outcomes."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import App, AsyncContext, Context, PermanentError, PolicyFields, TransientError, ValidationError
from holdfast.errors import LimitExceeded
from holdfast.services.presence import PresenceService
from holdfast.testing import ManualClock
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, dead, ended

QUICK: PolicyFields = {"backoff_base": 0}


def test_a_result_is_recorded(app: App, start: Starter) -> None:
    class Page(msgspec.Struct):
        url: str
        size: int

    @app.handler()
    def fetch(job: Context, url: str) -> Page:
        return Page(url, job.job.attempt)

    job = app.enqueue(fetch, url="u")
    start()
    assert ended(app, job).result == {"url": "u", "size": 1}
    assert [event.type for event in app.ledger.events(job.id)] == ["enqueued", "claimed", "started", "succeeded"]


def test_an_async_handler_runs_on_the_loop(app: App, start: Starter) -> None:
    @app.handler()
    async def sleepy(job: AsyncContext, n: int) -> Any:
        await asyncio.sleep(0)
        await job.beat(stage="half")
        return [n, threading.current_thread().name, job.job.stage]

    jobs = app.enqueue_many(sleepy, [{"n": n} for n in range(20)])
    start()
    assert [ended(app, job).result[:2] for job in jobs] == [[n, "holdfast-loop"] for n in range(20)]
    assert app.ledger.get(jobs[0].id).stage == "half"


def test_handlers_run_side_by_side(app: App, start: Starter) -> None:
    together = threading.Barrier(4)

    @app.handler()
    def meet() -> int:
        return together.wait(20)

    jobs = app.enqueue_many(meet, [{}] * 4)
    start(threads=4)
    assert sorted(ended(app, job).result for job in jobs) == [0, 1, 2, 3]


def test_a_stuck_handler_delays_no_other_after_many_quick_ones(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler()
    def work(n: int) -> bool:
        return free.wait(20) if n == 600 else True

    jobs = app.enqueue_many(work, [{"n": n} for n in range(1_200)])
    start(threads=3)
    others = [job for number, job in enumerate(jobs) if number != 600]
    wait_until(lambda: app.ledger.counts()["default"].get("succeeded", 0) == len(others))
    assert app.ledger.get(jobs[600].id).status == "running"
    free.set()
    ended(app, jobs[600])


def test_jobs_behind_a_stuck_handler_are_released_while_other_pools_have_room(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler()
    def work(n: int) -> bool:
        return free.wait(100) if n == 600 else True

    @app.handler()
    async def beside() -> None: ...

    jobs = app.enqueue_many(work, [{"n": n} for n in range(1_200)])
    start(threads=1)
    wait_until(lambda: app.ledger.get(jobs[599].id).status == "succeeded")
    wait_until(lambda: app.ledger.counts()["default"] == {"succeeded": 600, "running": 1, "queued": 599}, seconds=90)
    free.set()


def test_a_handler_does_not_exceed_its_concurrency(app: App, start: Starter) -> None:
    running, most, mutex = 0, 0, threading.Lock()

    @app.handler(concurrency=2)
    def narrow() -> None:
        nonlocal running, most
        with mutex:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with mutex:
            running -= 1

    jobs = app.enqueue_many(narrow, [{}] * 20)
    start(threads=8)
    for job in jobs:
        ended(app, job)
    assert most == 2


def test_a_kind_without_a_handler_is_not_claimed(app: App, start: Starter) -> None:
    @app.handler()
    def known() -> None: ...

    unserved = app.ledger.enqueue("unserved")
    job = app.enqueue(known)
    start()
    ended(app, job)
    assert app.ledger.get(unserved.id).rev == 1


# Errors


@pytest.mark.parametrize(
    ("error", "status", "reason", "stage", "attempts"),
    [
        (TransientError("again"), "dead_lettered", "exhausted_retries", "exec", 2),
        (OSError("network"), "dead_lettered", "exhausted_retries", "exec", 2),
        (TimeoutError("slow"), "dead_lettered", "timeout", "exec", 2),
        (
            TransientError("t", reason_code="dependency_unavailable", failure_stage="fetch"),
            "dead_lettered",
            "dependency_unavailable",
            "fetch",
            2,
        ),
        (TransientError("t", reason_code="odd", failure_stage="odd"), "dead_lettered", "exhausted_retries", "exec", 2),
        (PermanentError("never"), "failed", None, "exec", 1),
        (PermanentError("never", failure_stage="commit"), "failed", None, "commit", 1),
        (
            PermanentError("p", reason_code="policy_violation", failure_stage="fetch"),
            "dead_lettered",
            "policy_violation",
            "fetch",
            1,
        ),
        (ValidationError("bad"), "dead_lettered", "validation_failed", "input", 1),
        (KeyError("mine"), "failed", None, "exec", 1),
        (SystemExit(3), "dead_lettered", "exhausted_retries", "exec", 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_class_of_an_error_selects_the_outcome(
    app: App, start: Starter, error: BaseException, status: str, reason: Any, stage: Any, attempts: int
) -> None:
    @app.handler(attempts_max=2, policy=QUICK, fail_on=KeyError)
    def wrong() -> None:
        raise error

    job = app.enqueue(wrong)
    start()
    found = ended(app, job)
    assert (found.status, found.attempt) == (status, attempts)
    assert found.last_error["type"] == type(error).__name__
    assert "in wrong" in found.last_error["traceback"]
    assert (found.reason_code, found.failure_stage) == (reason, stage)
    if reason:
        assert (dead(found)["reason_code"], dead(found)["failure_stage"]) == (reason, stage)
        assert dead(found)["attempts"] == attempts
        assert dead(found)["last_owner"] == "w0"


def test_errors_that_are_not_retryable_are_not_retried(app: App, start: Starter) -> None:
    @app.handler(policy=QUICK, retry_on=OSError)
    def picky(n: int) -> int:
        raise ValueError(n)

    job = app.enqueue(picky, n=1)
    start()
    assert (ended(app, job).status, app.ledger.get(job.id).attempt) == ("failed", 1)


def test_an_error_may_set_the_time_of_the_retry(app: App, start: Starter) -> None:
    @app.handler()
    def limited(job: Context) -> int:
        if job.job.attempt == 1:
            raise TransientError("slow down", retry_after="50ms")
        return job.job.attempt

    job = app.enqueue(limited)
    start()
    assert ended(app, job).result == 2
    failed, again = (app.ledger.events(job.id, types=[kind])[0] for kind in ("stalled", "requeued"))
    assert failed.reason == "TRANSIENT_ERROR"
    assert (again.payload["available_at"] - again.received_at.timestamp() * 1e6) == pytest.approx(50_000, abs=2)


def test_a_job_with_arguments_that_no_longer_fit_is_dead_lettered(app: App, start: Starter) -> None:
    @app.handler()
    def changed(n: int) -> None: ...

    job = app.ledger.enqueue("changed", {"n": "not a number"})
    start()
    found = ended(app, job)
    assert (dead(found)["reason_code"], dead(found)["failure_stage"]) == ("parse_error", "input")
    assert found.last_error["type"] == "ValidationError"


@pytest.mark.parametrize("result", [object(), "x" * 1_100_000, float("nan"), {"a": 2**60}])
def test_a_result_that_cannot_be_stored_dead_letters_the_job(app: App, start: Starter, result: Any) -> None:
    @app.handler()
    def wide() -> Any:
        return result

    @app.handler()
    def fine() -> int:
        return 1

    bad, good = app.enqueue(wide), app.enqueue(fine)
    start()
    assert ended(app, good).result == 1
    found = ended(app, bad)
    assert (found.status, dead(found)["reason_code"], dead(found)["failure_stage"]) == (
        "dead_lettered",
        "validation_failed",
        "output",
    )


# Hooks


def test_checks_run_before_the_start(app: App, start: Starter) -> None:
    asked: list[int] = []

    def ready(job: Context) -> bool:
        asked.append(job.job.attempt)
        return job.job.attempt > 1

    @app.handler(checks=ready, policy=QUICK)
    def careful(job: Context) -> int:
        return job.job.attempt

    job = app.enqueue(careful)
    start()
    assert ended(app, job).result == 2
    assert [event.type for event in app.ledger.events(job.id)] == [
        "enqueued", "claimed", "stalled", "requeued", "claimed", "started", "succeeded",
    ]  # fmt: skip
    assert asked == [1, 2]
    assert app.ledger.get(job.id).last_error["message"] == "test_checks_run_before_the_start.<locals>.ready returned False"


def test_a_check_may_dead_letter_a_job(app: App, start: Starter) -> None:
    @app.check
    def allowed(job: Context) -> None:
        raise PermanentError("not for us", reason_code="policy_violation")

    @app.handler()
    def never() -> None:
        raise AssertionError

    job = app.enqueue(never)
    start()
    found = ended(app, job)
    assert (dead(found)["reason_code"], found.started_at) == ("policy_violation", None)


def test_validators_check_results(app: App, start: Starter) -> None:
    @app.validator
    def positive(job: Context, result: int) -> bool:
        return result > 0

    def taken(job: Context, result: int) -> None:
        if job.job.attempt == 1:
            raise TransientError("another process changed it")

    @app.handler(policy=QUICK)
    def number(n: int) -> int:
        return n

    @app.handler(policy=QUICK, conflicts=taken)
    def contested() -> int:
        return 5

    good, bad, twice = app.enqueue(number, n=1), app.enqueue(number, n=-1), app.enqueue(contested)
    start()
    assert ended(app, good).result == 1
    assert dead(ended(app, bad))["reason_code"] == "validation_failed"
    assert (ended(app, twice).result, app.ledger.get(twice.id).attempt) == (5, 2)


# Jobs enqueued by handlers


def test_jobs_enqueued_by_a_handler_have_its_correlation(app: App, start: Starter) -> None:
    @app.handler()
    def child(n: int) -> int:
        return n

    @app.handler()
    def parent(job: Context) -> int:
        return job.enqueue(child, n=job.job.id).id

    job = app.options(correlation_id="order-7").enqueue(parent)
    start()
    made = holdfast.open(app.url).get(ended(app, job).result)
    assert (made.kind, made.correlation_id) == ("child", "order-7")


# Policies


def test_a_handler_declares_its_policy(app: App, start: Starter) -> None:
    @app.handler(lease_ttl="90s", attempts_max=7, policy={"cancel_grace": "5s"})
    def declared(job: Context) -> list[int]:
        policy = job.job.policy
        assert policy is not None
        return [policy.lease_ttl_ms, policy.attempts_max, policy.cancel_grace_ms]

    job = app.enqueue(declared)
    start()
    assert ended(app, job).result == [90_000, 7, 5_000]


def test_the_policy_of_an_operator_overrides_a_handler(app: App, start: Starter) -> None:
    @app.handler(attempts_max=7, lease_ttl="90s")
    def declared(job: Context) -> list[int]:
        policy = job.job.policy
        assert policy is not None
        return [policy.attempts_max, policy.lease_ttl_ms]

    app.ledger.set_policy("declared", attempts_max=2)
    job = app.enqueue(declared)
    start()
    assert ended(app, job).result == [2, 90_000]
    assert app.ledger.policies()["kind"]["declared"] == {"attempts_max": 2}


def _version(app: App, **declared: Any) -> App:
    """The same app with another version of its handlers."""
    made = App(app.url, clock=app.clock)

    @made.handler("declared", **declared)
    def work() -> None: ...

    return made


def test_a_field_that_a_newer_version_does_not_declare_is_removed(app: App) -> None:
    job = app.ledger.enqueue("declared", queue="mail")
    for version, attempts_max in (({"queue": "mail", "attempts_max": 1}, 1), ({"queue": "mail"}, 5)):
        with _version(app, **version).worker() as worker:
            worker.start()
            app.ledger.wait(job.id, timeout=30)
        assert app.ledger.policy_of(job.id).attempts_max == attempts_max
    assert app.ledger.declarations()["declared"].queue == "mail"


def test_an_app_declares_a_kind_that_no_worker_has_declared(app: App) -> None:
    first, newer = _version(app, attempts_max=2), _version(app, attempts_max=3)
    first.enqueue("declared")
    found = app.ledger.declarations()["declared"]
    assert (found.queue, found.policy) == ("default", {"attempts_max": 2})
    newer.enqueue("declared")
    assert app.ledger.declarations()["declared"] == found
    for one in (first, newer):
        one.close()


def test_two_versions_side_by_side_do_not_overwrite_each_others_declarations(app: App) -> None:
    older, newer = _version(app, attempts_max=1).worker(name="older"), _version(app, attempts_max=2).worker(name="newer")
    with older, newer:
        older.start()
        newer.start()
        before = app.ledger.declarations()["declared"]
        for job in app.ledger.enqueue_many([{"kind": "declared"}] * 20):
            ended(app, job)
        for worker in (older, newer):
            PresenceService(worker.runtime.ledger, worker.name, dict).tick()
        assert app.ledger.declarations()["declared"] == before
        assert (before.policy, before.declared_by) == ({"attempts_max": 2}, "newer")


@pytest.mark.parametrize("option", [{"requires": ["worker:ant"]}, {"requires": "gpu"}, {"limits": "api"}, {"limits": {"api": 0}}])
def test_wrong_limits_and_labels_of_a_handler_are_refused_where_they_are_declared(app: App, option: dict[str, Any]) -> None:
    with pytest.raises((LimitExceeded, ValidationError)) as refused:
        app.handler("fetch", **option)
    assert refused.value.context["field"] in option


def test_a_handler_declares_the_limits_and_labels_of_its_jobs(app: App) -> None:
    for options in ({"limits": ["api"], "requires": ["gpu"]}, {}):
        with _version(app, **options).worker() as worker:
            worker.start()
        found = app.ledger.declarations()["declared"]
        assert (found.limits, found.requires) == (({"api": 1}, ("gpu",)) if options else ({}, ()))


def test_an_unchanged_declaration_is_not_written_again(app: App) -> None:
    for name in ("first", "second"):
        with _version(app, attempts_max=2).worker(name=name) as worker:
            worker.start()
    assert app.ledger.declarations()["declared"].declared_by == "first"


def test_a_delayed_job_starts_on_time(app: App, start: Starter) -> None:
    @app.handler()
    def soon() -> None: ...

    start()
    job = app.options(delay="300ms").enqueue(soon)
    found = ended(app, job)
    assert found.started_at is not None and found.started_at >= found.available_at


def test_queues_are_served_in_strict_order(app: App, start: Starter) -> None:
    order: list[str] = []

    @app.handler(queue="low")
    def later() -> None:
        order.append("low")

    @app.handler(queue="high")
    def sooner() -> None:
        order.append("high")

    app.enqueue_many(later, [{}] * 30)
    app.enqueue_many(sooner, [{}] * 30)
    start(queues=["high", "low"], threads=1)
    wait_until(lambda: len(order) == 60)
    assert order == ["high"] * 30 + ["low"] * 30


def test_a_worker_that_never_started_can_be_closed(app: App) -> None:
    """Otherwise the error that prevented the start would be hidden."""
    app.handler("nothing")(lambda: None)
    with app.worker():
        pass


def test_an_app_can_be_bound_to_another_ledger(app: App, tmp_path: Path) -> None:
    app.handler("nothing")(lambda: None)
    here = app.enqueue("nothing")
    app.move(f"sqlite:///{tmp_path}/elsewhere.db")
    assert (tmp_path / "elsewhere.db").exists() is False, "opened before its first use"
    there = app.enqueue("nothing")
    assert app.ledger.get(there.id).correlation_id != here.correlation_id
    assert app.url == f"sqlite:///{tmp_path}/elsewhere.db"


def test_a_handler_that_blocks_the_event_loop_is_reported(app: App, caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()

    @app.handler()
    async def block() -> int:
        free.wait(30)
        return 1

    def said(what: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if what in record.getMessage()]

    caplog.set_level("INFO", logger="holdfast")
    with app.worker(name="w") as worker:
        worker.start()
        job = app.enqueue(block)
        [record] = wait_until(lambda: said("blocks the event loop"))
        assert record.jobs == [job.id]  # type: ignore[attr-defined]
        free.set()
        assert ended(app, job).result == 1
        wait_until(lambda: said("was blocked for"))
    assert len(said("blocks the event loop")) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "deleted after 30 d"), ({"keep_beats": "never"}, "kept"), ({"keep_beats": "2d"}, "deleted after 2 d")],
)
def test_a_worker_reports_how_long_contents_of_heartbeats_are_kept(
    app: App, start: Starter, settings: dict[str, Any], said: str
) -> None:
    @app.handler()
    def noop() -> None: ...

    start(**settings)
    wait_until(app.ledger.workers)
    [found] = [finding for finding in app.ledger.diagnose().findings if finding.code == "retention"]
    assert f"contents of heartbeats are {said}, finished jobs are kept, " in found.words


def test_a_worker_keeps_open_failures_without_a_setting(app: App) -> None:
    @app.handler()
    def noop() -> None: ...

    done, left = app.ledger.enqueue("other"), app.ledger.enqueue("other")
    app.ledger.cancel(done.id)
    app.ledger.dead_letter(left.id, reason_code="timeout")
    with app.worker(keep_jobs="0s") as worker:
        worker.start()
        wait_until(lambda: [job.id for job in app.ledger.list()] == [left.id])
    with app.worker(keep_failed="0s") as worker:
        worker.start()
        wait_until(lambda: not app.ledger.list())


@pytest.mark.parametrize("clock", [ManualClock(), None])
def test_a_worker_warns_of_a_manual_clock(sqlite_url: str, clock: ManualClock | None, caplog: pytest.LogCaptureFixture) -> None:
    app = App(sqlite_url, clock=clock)

    @app.handler()
    def plain() -> None: ...

    with app.worker(shutdown_timeout=0) as worker:
        worker.start()
    app.close()
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [line.partition(":")[0] for line in said] == (["the ledger has a ManualClock"] if clock else [])
    assert all("Leave out clock=" in line for line in said)
