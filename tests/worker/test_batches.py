"""Batch handlers: jobs that run together, each with its own outcome."""

import threading
from typing import Any

import pytest

from holdfast import App, BatchContext, HoldfastError, Job, PermanentError, ValidationError
from holdfast.testing import drain
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended


def enqueue(app: App, handler: Any, count: int, **options: Any) -> list[Job]:
    return app.options(**options).enqueue_many(handler, [{"n": n} for n in range(count)])


def test_jobs_run_in_batches_and_each_has_its_result(app: App, start: Starter) -> None:
    sizes: list[int] = []

    @app.handler(batch=4, batch_wait="10s")
    def double(jobs: list[BatchContext]) -> list[int]:
        sizes.append(len(jobs))
        return [2 * job.job.args["n"] for job in jobs]

    made = enqueue(app, double, 12)
    start()
    assert [ended(app, job).result for job in made] == [2 * n for n in range(12)]
    assert sizes == [4, 4, 4]


def test_a_batch_that_is_not_full_waits_for_more_jobs(app: App, start: Starter) -> None:
    sizes: list[int] = []

    @app.handler(batch=10, batch_wait="1s")
    def work(jobs: list[BatchContext]) -> None:
        sizes.append(len(jobs))

    start()
    first = enqueue(app, work, 1)
    wait_until(lambda: app.ledger.get(first[0].id).status == "running")
    later = enqueue(app, work, 2)
    for job in (*first, *later):
        assert ended(app, job).result is None
    assert sizes == [3]


def test_a_job_can_be_settled_before_the_others(app: App, start: Starter) -> None:
    go = threading.Event()

    @app.handler(batch=3, attempts_max=1)
    def work(jobs: list[BatchContext]) -> None:
        jobs[0].succeed({"early": True})
        jobs[1].fail(PermanentError("this one is broken"))
        with pytest.raises(ValidationError, match="has its outcome already"):
            jobs[0].fail(ValueError("too late"))
        assert go.wait(30)

    made = enqueue(app, work, 3)
    start()
    assert ended(app, made[0]).result == {"early": True}
    broken = ended(app, made[1])
    assert broken.last_error is not None and "this one is broken" in str(broken.last_error)
    assert app.ledger.get(made[2].id).status == "running"
    go.set()
    assert ended(app, made[2]).status == "succeeded"


def test_jobs_without_an_outcome_are_retried_singly_after_an_error(app: App, start: Starter) -> None:
    batches: list[list[int]] = []

    @app.handler(batch=5, policy={"backoff_base": "10ms", "backoff_max": "10ms", "attempts_max": 3})
    def work(jobs: list[BatchContext]) -> None:
        batches.append([job.job.args["n"] for job in jobs])
        jobs[0].succeed()
        if any(job.job.args["n"] == 3 for job in jobs):
            raise RuntimeError("the poison is 3")

    made = enqueue(app, work, 5)
    start()
    statuses = [ended(app, job).status.value for job in made]
    assert batches[0] == [0, 1, 2, 3, 4]
    assert sorted(batches[1:]) == [[1], [2], [3], [4]]
    assert statuses == ["succeeded"] * 5  # the poison was settled first when it was alone
    assert [app.ledger.get(job.id).attempt for job in made] == [1, 2, 2, 2, 2]


def test_a_list_of_another_length_is_no_result(app: App) -> None:
    @app.handler(batch=5)
    def work(jobs: list[BatchContext]) -> list[int]:
        return []

    [job] = enqueue(app, work, 1)
    drained = drain(app)
    assert drained.counts == {"failed": 1}
    assert "a result for each of its 1 jobs" in str(app.ledger.get(job.id).last_error)


def test_jobs_that_were_released_run_together_again(app: App, start: Starter) -> None:
    sizes: list[int] = []

    @app.handler(batch=5, batch_wait="10s")
    def work(jobs: list[BatchContext]) -> None:
        sizes.append(len(jobs))

    made = enqueue(app, work, 5)
    for job in app.ledger.claim("w", limit=5):
        app.ledger.release(job.fence)
    start()
    assert [ended(app, job).attempt for job in made] == [2] * 5
    assert sizes == [5]


def test_a_worker_that_stops_releases_jobs_that_wait_for_a_batch(app: App, start: Starter) -> None:
    @app.handler(batch=10, batch_wait="60s")
    def work(jobs: list[BatchContext]) -> None: ...

    [job] = enqueue(app, work, 1)
    worker = start(shutdown_timeout=20)
    wait_until(lambda: app.ledger.get(job.id).status == "running")
    worker.close()
    found = app.ledger.get(job.id)
    assert (found.status.value, found.releases) == ("queued", 1)


def test_other_kinds_run_while_a_batch_runs(app: App, start: Starter) -> None:
    go = threading.Event()

    @app.handler(batch=2)
    def slow(jobs: list[BatchContext]) -> None:
        assert go.wait(30)

    @app.handler
    def quick() -> str:
        return "done"

    held = enqueue(app, slow, 2)
    start()
    wait_until(lambda: app.ledger.get(held[0].id).status == "running")
    more = enqueue(app, slow, 1)
    assert ended(app, app.enqueue(quick)).result == "done"
    assert app.ledger.get(more[0].id).status == "queued"
    go.set()
    for job in (*held, *more):
        assert ended(app, job).status == "succeeded"


def test_a_batch_keeps_its_leases_while_it_runs(app: App, start: Starter) -> None:
    go = threading.Event()

    @app.handler(batch=3, lease_ttl="2s", policy={"heartbeat_interval": "1s"})
    def slow(jobs: list[BatchContext]) -> None:
        assert go.wait(30)

    made = enqueue(app, slow, 3)
    start()
    wait_until(lambda: all(sum(event.type == "heartbeat" for event in app.ledger.events(job.id)) > 2 for job in made))
    go.set()
    assert [ended(app, job).attempt for job in made] == [1, 1, 1]


def test_a_job_that_is_cancelled_hard_does_not_stop_its_batch(app: App, start: Starter) -> None:
    go = threading.Event()

    @app.handler(batch=2, lease_ttl="2s")
    def slow(jobs: list[BatchContext]) -> list[int]:
        assert go.wait(30)
        return [1 for _ in jobs]

    made = enqueue(app, slow, 2)
    start()
    wait_until(lambda: all(app.ledger.get(job.id).status == "running" for job in made))
    app.ledger.cancel(made[0].id, hard=True)
    go.set()
    assert ended(app, made[1]).result == 1
    assert app.ledger.get(made[0].id).status == "cancelled"


async def _async_work(jobs: list[BatchContext]) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (_async_work, {"batch": 5}, "runs in a thread"),
        (lambda jobs: None, {"batch": 5, "isolation": "process"}, "runs in a thread"),
        (lambda jobs: None, {"batch": 5, "concurrency": 2}, "one batch of a kind at a time"),
        (lambda: None, {"batch": 5}, "takes one parameter"),
        (lambda jobs, url: None, {"batch": 5}, "takes one parameter"),
        (lambda jobs: None, {"batch": 0}, "batch"),
        (lambda jobs: None, {"batch": 1_001}, "batch"),
        (lambda jobs: None, {"batch": 5, "batch_wait": "2m"}, "batch_wait"),
        (lambda: None, {"batch_wait": "1s"}, "needs batch"),
    ],
)
def test_wrong_batch_handlers_are_refused(app: App, function: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HoldfastError, match=words):
        app.handler("k", **options)(function)


def test_the_arguments_of_a_batch_handler_have_names(app: App) -> None:
    @app.handler(batch=5)
    def work(jobs: list[BatchContext]) -> None: ...

    with pytest.raises(ValidationError, match="have names"):
        app.enqueue(work, 1)
    assert app.enqueue(work, n=1, text="x").args == {"n": 1, "text": "x"}
