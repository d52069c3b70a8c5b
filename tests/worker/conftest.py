"""Apps with real workers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import App, Job, Worker
from holdfast.worker import claim_loop
from tests.support.stores import leave_to_torture
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

Starter = Callable[..., Worker]


ONE_STORE = {
    "test_a_graph_is_drained_in_its_order",
    "test_a_result_that_cannot_be_stored_dead_letters_the_job",
    "test_every_raised_error_is_the_outcome_of_its_job_only",
    "test_jobs_behind_a_stuck_handler_are_released_while_other_pools_have_room",
    "test_the_class_of_an_error_selects_the_outcome",
    "test_a_child_dies_with_its_worker",
    "test_a_child_process_learns_of_a_soft_cancel",
    "test_a_child_process_learns_that_its_worker_stops",
    "test_a_context_works_from_a_child",
    "test_a_dead_child_is_noticed_although_a_fork_of_it_lives",
    "test_a_handler_that_blocks_the_event_loop_is_reported",
    "test_a_process_that_takes_too_long_is_stopped",
    "test_a_result_of_a_child_that_cannot_be_stored_is_refused",
    "test_a_timedelta_of_a_retry_is_passed_from_a_child",
    "test_a_wrong_call_to_holdfast_in_a_child_process_is_tried_again",
    "test_the_last_progress_of_a_child_is_recorded_with_its_outcome",
    "test_the_result_of_a_child_is_checked",
    "test_what_a_child_reports_never_costs_its_attempt",
}
"""Tests of what a worker does with its handlers and child processes. These talk to the worker, not to the store.

`make test` runs them on SQLite only, `make torture` also on PostgreSQL.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_torture(items, lambda item: item.originalname in ONE_STORE)


@pytest.fixture
def empty_schema(warm_url: str) -> str:
    return warm_url


@pytest.fixture(autouse=True)
def quick_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an idle worker of this process notice sooner that it must stop: most tests end with that."""
    monkeypatch.setattr(claim_loop, "WAIT_SLICE_SECONDS", 0.02)


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    """An app on an empty ledger of each kind of store, on the real clock."""
    app = App(store_url)
    yield app
    app.close()


@pytest.fixture
def start(app: App) -> Iterator[Starter]:
    """Start workers in this process. The test stops those that still run."""
    workers: list[Worker] = []

    def starter(**settings: Any) -> Worker:
        worker = app.worker(**{"name": f"w{len(workers)}", "shutdown_timeout": 0, **settings})
        workers.append(worker)
        worker.start()
        return worker

    yield starter
    for worker in workers:
        worker.close()


@pytest.fixture
def fleet(store_url: str) -> Iterator[Fleet]:
    with Fleet(store_url) as fleet:
        yield fleet


def ended(app: App, job: Job, *, seconds: float = 30.0) -> Job:
    """Wait until the job has ended, and return it."""

    def look() -> Job | None:
        found = app.ledger.get(job.id)
        return found if found.finished_at is not None else None

    found = wait_until(look, seconds=seconds, what=f"the end of job {job.id}: {app.ledger.get(job.id).status}")
    assert found is not None
    assert app.ledger.check(job.id) == []
    return found


def became(app: App, job: Job, status: str, *, seconds: float = 30.0) -> Job:
    wait_until(lambda: app.ledger.get(job.id).status == status, seconds=seconds, what=f"job {job.id} {status}")
    return app.ledger.get(job.id)


def dead(job: Job) -> dict[str, Any]:
    """The dead-letter fields of a dead-lettered job."""
    assert job.dead_letter is not None
    return job.dead_letter
