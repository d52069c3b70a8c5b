"""Workers serve sinks, one at a time. Another takes over when one stops or dies."""

from http.server import BaseHTTPRequestHandler

import pytest

from holdfast import App, HoldfastError, Ledger
from holdfast.services import CallableSink
from tests.support.deliveries import check_deliveries, expected
from tests.support.receiver import OK, Receiver
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter
from tests.worker.fleet import Fleet

JOBS = 100
FATAL = 150
"""The number of a message in the middle that is received and never answered."""


def test_a_killed_workers_sink_is_served_by_another(fleet: Fleet, real: Ledger) -> None:
    killed: list[str] = []

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        """Kill the process that sends the fatal message before it gets an answer."""
        if number == FATAL:
            killed.append(handler.headers["X-Worker"])
            fleet.kill(killed[0])
        else:
            OK(handler, number)

    # The duties of the dead worker soon expire.
    real.set_policy("count", heartbeat_interval=1, missed_beats_max=1, lease_ttl=1, backoff_base=0)
    with Receiver(answer) as receiver:
        for name in ("ant", "bee"):
            fleet.start(name, hook=receiver.url, relay_duty_ttl="3s")
        real.enqueue_many([{"kind": "count", "args": {"log": "/dev/null", "n": n}} for n in range(JOBS)])
        wait_until(lambda: real.counts()["default"] == {"succeeded": JOBS}, seconds=90, what=str(real.counts()))
        ids = expected(real)
        last = f"msg_{real.id}_{ids[-1]}_jobs"
        wait_until(lambda: receiver.keys[-1:] == [last], seconds=60, what="all is delivered")
    check_deliveries(receiver.received, ids)
    [dead] = killed
    assert {got.headers["x-worker"] for got in receiver.received[FATAL:]} == {"ant", "bee"} - {dead}


def test_a_worker_that_stops_leaves_its_sinks_to_others(app: App, start: Starter) -> None:
    delivered: list[int] = []
    app.handler("work")(lambda: None)
    app.sink(CallableSink(lambda message: delivered.append(message.data.job_id), name="sink", start="beginning"))
    worker = start()
    job = app.ledger.enqueue("unserved")
    wait_until(lambda: delivered == [job.id], what="the sink is delivered")
    assert not app.ledger.take_duty("relay:sink", "other", ttl="1s")
    worker.finish()
    assert app.ledger.take_duty("relay:sink", "other", ttl="1s")


def test_the_duty_of_a_relay_has_limits_in_a_worker(app: App) -> None:
    app.handler("work")(lambda: None)
    app.sink(CallableSink(lambda message: None))
    with pytest.raises(HoldfastError) as caught:
        app.worker(relay_duty_ttl="500ms")
    assert caught.value.code == "limit_exceeded"
