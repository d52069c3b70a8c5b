"""What the parts of a worker share, and in which order."""

import pytest

from holdfast import App, Context
from holdfast.worker.beats import Beater
from tests.worker.conftest import became


def test_beats_are_woken_when_there_is_something_to_beat_for(app: App) -> None:
    """Woken earlier, they would find nothing and sleep for ever, with a job held."""
    seen: list[int] = []

    @app.handler()
    def short() -> None: ...

    worker = app.worker(name="w")
    worker.shift.ring = lambda: seen.append(len(worker.shift.leases))  # type: ignore[method-assign]
    worker.start()
    became(app, app.enqueue(short), "succeeded")
    worker.close()
    assert seen == [1]


@pytest.mark.parametrize("handed", [True, False])
def test_a_heartbeat_that_comes_after_the_outcome_loses_no_lease(app: App, handed: bool) -> None:
    """A worker completes a job while a heartbeat for it is on the way."""

    @app.handler()
    def short() -> None: ...

    shift = app.worker(name="w").shift
    app.enqueue(short)
    [job] = app.ledger.claim("w", start=True)
    context = Context(job, shift.registry.find("short"), shift, 1.0, 30.0, -1.0)
    shift.hold(context)
    doomed: list[Context] = []
    assert job.fence is not None
    app.ledger.complete(job.fence)
    context.handed = handed
    Beater(shift, app.ledger, doomed.append).tick()
    assert not shift.leases
    assert context.lost is not handed
    assert bool(doomed) is not handed
