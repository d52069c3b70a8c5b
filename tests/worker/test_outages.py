"""Workers whose ledger goes away, or whose bell breaks."""

import threading

from holdfast import App
from tests.support.waiting import wait_until
from tests.worker.conftest import became, ended
from tools.pgserver import PostgresServer


class BrokenBell:
    """Fails as a driver does, not as the contract says."""

    def wait(self, timeout: float) -> bool:
        raise OSError("broken")

    def close(self) -> None: ...


def test_claims_go_on_after_a_bell_that_breaks(app: App) -> None:
    @app.handler()
    def work() -> int:
        return 1

    worker = app.worker(name="w")
    broken = threading.Event()
    whole = worker.shift.ledger.waiter

    def waiter() -> object:
        if broken.is_set():
            return whole()
        broken.set()
        return BrokenBell()

    worker.shift.ledger.waiter = waiter  # type: ignore[method-assign, assignment]
    with worker:
        worker.start()
        wait_until(broken.is_set)
        assert ended(app, app.enqueue(work)).result == 1


def test_a_worker_told_twice_to_stop_ends_though_its_ledger_is_gone(restartable_server: PostgresServer) -> None:
    free = threading.Event()
    app = App(restartable_server.url)

    @app.handler()
    def work() -> int:
        free.wait(20)
        return 1

    job = app.enqueue(work)
    worker = app.worker(name="w")
    worker.start()
    became(app, job, "running")
    restartable_server.stop_immediate()
    free.set()
    wait_until(lambda: not worker._running())
    worker.stop()
    worker.stop()
    closing = threading.Thread(target=worker.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    app.close()
