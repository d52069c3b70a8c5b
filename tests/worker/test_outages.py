"""Workers during outages of their ledger or of its notifications."""

import threading

import pytest

from holdfast import App
from holdfast.errors import LimitExceeded, Unavailable
from holdfast.ledger import Ledger
from tests.support.waiting import wait_until
from tests.worker.conftest import became, ended
from tools.pgserver import PostgresServer


class BrokenWaiter:
    """A waiter that raises an error of the driver instead of one of Holdfast."""

    def wait(self, timeout: float) -> bool:
        raise OSError("broken")

    def close(self) -> None: ...


def test_claims_continue_after_the_listener_breaks(app: App) -> None:
    @app.handler()
    def work() -> int:
        return 1

    worker = app.worker(name="w")
    broken = threading.Event()
    whole = worker.runtime.ledger.waiter

    def waiter() -> object:
        if broken.is_set():
            return whole()
        broken.set()
        return BrokenWaiter()

    worker.runtime.ledger.waiter = waiter  # type: ignore[method-assign, assignment]
    with worker:
        worker.start()
        wait_until(broken.is_set)
        assert ended(app, app.enqueue(work)).result == 1


def test_a_second_signal_ends_a_worker_without_its_ledger(restartable_server: PostgresServer) -> None:
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


def test_an_outage_and_its_end_are_each_logged_once(restartable_server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    app = App(restartable_server.url)

    @app.handler()
    def work() -> int:
        return 1

    def said(what: str) -> int:
        return sum(record.getMessage().startswith(what) for record in caplog.records)

    caplog.set_level("INFO", logger="holdfast")
    with app.worker(name="w") as worker:
        worker.start()
        assert ended(app, app.enqueue(work)).result == 1
        restartable_server.stop_immediate()
        wait_until(lambda: said("sweep: unavailable") and said("claim: unavailable"))
        wait_until(lambda: said("sweep: unavailable") == 1)
        restartable_server.start()
        wait_until(lambda: said("claim: works again") and said("sweep: works again"))
        assert ended(app, app.enqueue(work)).result == 1
    assert said("claim: unavailable") == said("sweep: unavailable") == 1
    app.close()


def test_a_worker_with_a_wrong_setting_leaves_no_ledger_open(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.handler()
    def work() -> int:
        return 1

    opened = []
    again = app.open_again

    def noted() -> Ledger:
        opened.append(again())
        return opened[-1]

    monkeypatch.setattr(app, "open_again", noted)
    with pytest.raises(LimitExceeded):
        app.worker(threads=0)
    assert len(opened) == 2
    for ledger in opened:
        with pytest.raises(Unavailable):
            ledger.counts()
