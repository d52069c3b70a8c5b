"""What the parts of a worker share, and in which order."""

from holdfast import App
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
