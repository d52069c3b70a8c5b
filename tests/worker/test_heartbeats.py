"""The heartbeat loop of a worker and its order with claims and outcomes."""

import pytest

from holdfast import App, Context
from holdfast.worker.heartbeats import WorkerLeases
from tests.worker.conftest import became


def test_the_heartbeat_thread_is_woken_by_a_new_lease(app: App) -> None:
    """If it were woken earlier, it would find no lease and sleep while a job is held."""
    seen: list[int] = []

    @app.handler()
    def short() -> None: ...

    worker = app.worker(name="w")
    worker.runtime.wake_heartbeats = lambda: seen.append(len(worker.runtime.leases))  # type: ignore[method-assign]
    worker.start()
    became(app, app.enqueue(short), "succeeded")
    worker.close()
    assert seen == [1]


@pytest.mark.parametrize("handed", [True, False])
def test_a_heartbeat_that_comes_after_the_outcome_loses_no_lease(app: App, handed: bool) -> None:
    """A worker completes a job while a heartbeat for it is on the way."""

    @app.handler()
    def short() -> None: ...

    runtime = app.worker(name="w").runtime
    app.enqueue(short)
    [job] = app.ledger.claim("w", start=True)
    context = Context(job, runtime.registry.find("short"), runtime, 1.0, 30.0, -1.0)
    runtime.hold(context)
    doomed: list[Context] = []
    app.ledger.complete(job.fence)
    context.is_settling = handed
    WorkerLeases(runtime, app.ledger, doomed.append).tick()
    assert not runtime.leases
    assert context.lost is not handed
    assert bool(doomed) is not handed
