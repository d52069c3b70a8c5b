"""Apps with real workers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import App, Job, Worker
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

Starter = Callable[..., Worker]


@pytest.fixture
def empty_schema(warm_url: str) -> str:
    return warm_url


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
