"""The relay with real writers, real processes that die, and real notifications."""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Ledger, Unavailable
from holdfast.ledger.verbs.services import Outbox
from holdfast.services import CallableSink, Message, Relay
from tests.integration.conftest import Opener
from tests.support.deliveries import check_deliveries, expected
from tests.support.duties import GrantEveryDuty
from tests.support.processes import Program
from tests.support.receiver import Receiver
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer


@contextmanager
def running(relay: Relay) -> Iterator[None]:
    """Run the relay in another thread, and stop it in order when the block ends."""
    stop, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            relay.run(stop)
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert failed == []


def write(ledger: Ledger, number: int, rounds: int) -> None:
    """Batches of very different sizes, so that transactions overlap and commit in another order than they began."""
    chance = random.Random(number)
    for _ in range(rounds):
        ledger.enqueue_many([{"kind": "write"}] * chance.choice([1, 1, 5, 40]))
        jobs = ledger.claim(f"w{number}", limit=chance.choice([1, 10, 40]), start=True)
        fences = [job.fence for job in jobs]
        ledger.heartbeat_many(fences)
        ledger.complete_many([(fence, None) for fence in fences if chance.random() < 0.7])


def write_at_once(ledgers: list[Ledger], rounds: int) -> None:
    writers = [threading.Thread(target=write, args=(ledger, number, rounds)) for number, ledger in enumerate(ledgers)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def test_all_events_of_four_writers_are_sent_once_and_in_order(store_url: str, real: Ledger, opened: Opener) -> None:
    delivered: list[str] = []
    sink = CallableSink(lambda message: delivered.append(message.event.id), start="beginning")
    with running(Relay(real, [sink])):
        write_at_once([opened(store_url) for _ in range(4)], rounds=15)
        ids = expected(real)
        wait_until(lambda: len(delivered) >= len(ids), what="all is delivered")
    assert delivered == ids
    [state] = real.sinks()
    assert state.behind == 0


def test_a_waiting_relay_is_woken(store_url: str, real: Ledger, opened: Opener) -> None:
    """A notification from another ledger wakes the relay long before its next poll."""
    delivered = threading.Semaphore(0)
    relay = Relay(real, [CallableSink(lambda message: delivered.release(), start="beginning")])
    other = opened(store_url)
    with running(relay):
        for _ in range(3):
            other.enqueue("work")
            assert delivered.acquire(timeout=25)


def test_a_revived_sink_is_served_at_once(real: Ledger) -> None:
    delivered: list[str] = []
    broken = threading.Event()
    broken.set()

    def tell(message: Message) -> None:
        if broken.is_set():
            raise OSError("out of order")
        delivered.append(message.event.id)

    real.enqueue("work")
    with running(Relay(real, [CallableSink(tell, start="beginning", attempts_max=1)])):
        wait_until(lambda: [state for state in real.sinks() if state.dead_at], what="the sink is dead")
        broken.clear()
        real.revive_sink("callable")
        wait_until(lambda: delivered, seconds=25, what="it goes on")


def test_an_event_that_commits_late_is_sent_in_its_place(postgres_url: str, on_postgres: Ledger) -> None:
    delivered: list[int] = []
    relay = Relay(on_postgres, [CallableSink(lambda message: delivered.append(message.data.job_id), start="beginning")])
    with running(relay), psycopg.connect(postgres_url) as connection:
        first = on_postgres.enqueue("first")
        wait_until(lambda: delivered == [first.id], what="the first is delivered")
        late = on_postgres.enqueue("late", connection=connection)
        quick = on_postgres.enqueue("quick")
        connection.commit()
        wait_until(lambda: len(delivered) == 3, what="all are delivered")
    assert delivered == [first.id, late.id, quick.id]


def test_a_relay_continues_after_a_crash_of_the_server(restartable_server: PostgresServer, opened: Opener) -> None:
    ledger = opened(restartable_server.url)
    delivered: list[int] = []
    with running(Relay(ledger, [CallableSink(lambda message: delivered.append(message.data.job_id), start="beginning")])):
        first = ledger.enqueue("first")
        wait_until(lambda: delivered == [first.id], what="the first is delivered")
        restartable_server.stop_immediate()
        restartable_server.start()
        second = ledger.enqueue("second")
        wait_until(lambda: second.id in delivered, what="the second is delivered")
    assert list(dict.fromkeys(delivered)) == [first.id, second.id]


def test_a_relay_of_a_closed_ledger_ends(real: Ledger) -> None:
    relay = Relay(real, [CallableSink(lambda message: None)])
    real.close()
    with pytest.raises(Unavailable):
        relay.run(threading.Event())


# Killed relays


def live_and_die(url: str, receiver: Receiver, lives: int) -> None:
    """Run one relay until it kills itself after a number of messages, before its position is saved.

    It begins when the duty of the one before has expired.
    """
    before = len(receiver.received)
    with Program("relaying", url, receiver.url, lives) as program:
        wait_until(lambda: len(receiver.received) >= before + lives, what="the relay has sent")
        with pytest.raises(AssertionError, match="the program ended with -9"):
            program.line()


def kill_often(url: str, ledger: Ledger, *, lives: int) -> None:
    chance = random.Random(lives)
    with Receiver() as receiver:
        for _ in range(lives):
            write(ledger, chance.randrange(1_000), rounds=6)
            live_and_die(url, receiver, chance.randrange(1, 130))
        ids = expected(ledger)
        with Program("relaying", url, receiver.url, 0) as program:
            # Look at the last message only: the receiver is in this process and has a long backlog.
            last = f"msg_{ledger.id}_{ids[-1]}_jobs"
            wait_until(lambda: receiver.received[-1].key == last, seconds=120, what="all is delivered")
            program.tell()
            program.wait()
    check_deliveries(receiver.received, ids)


def test_a_killed_relay_loses_nothing_and_keeps_the_order(store_url: str, real: Ledger) -> None:
    kill_often(store_url, real, lives=3)


@pytest.mark.torture
def test_many_killed_relays_lose_nothing_and_keep_the_order(store_url: str, real: Ledger) -> None:
    kill_often(store_url, real, lives=50)


# The cost of idle relays


class PatientOutbox(Outbox):
    """Return from waits at once, and add up their time."""

    def __init__(self, ledger: Ledger, stop: threading.Event, seconds: float) -> None:
        super().__init__(ledger._store, ledger._pipeline, ledger._entropy, self._passed)
        self.waited = 0.0
        self._stop, self._seconds = stop, seconds

    def _passed(self) -> float:
        return self.waited

    def waiter(self) -> "PatientOutbox":
        return self

    def wait(self, timeout: float) -> bool:
        self.waited += timeout
        if self.waited >= self._seconds:
            self._stop.set()
        return False

    def close(self) -> None: ...


def patient(relay: Relay, ledger: Ledger, stop: threading.Event, seconds: float) -> PatientOutbox:
    """Run a relay for this many seconds of waiting, which pass at once."""
    outbox = PatientOutbox(ledger, stop, seconds)
    relay._outbox, relay.duty.monotonic = outbox, outbox._passed
    return outbox


def test_an_idle_relay_costs_almost_nothing(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    on_postgres.enqueue("work")
    stop, hour = threading.Event(), 3_600.0
    relay = Relay(on_postgres, [CallableSink(lambda message: None, start="beginning")])
    # Before its first tick: two clocks in one relay would make its cost depend on how long the machine has been up.
    patient(relay, on_postgres, stop, hour)
    relay.tick()
    statements = 0
    execute = psycopg.Cursor.execute

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(self, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    relay.run(stop)
    renewals = hour / relay.duty.renew_seconds
    assert renewals < statements <= 0.2 * hour


class Timed(GrantEveryDuty):
    """Grant the duty only after a time, and record when it was requested."""

    def __init__(self, free_at: float) -> None:
        super().__init__()
        self.free_at = free_at
        self.asked_at: list[float] = []
        self.monotonic: Callable[[], float] = lambda: 0.0

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        self.asked_at.append(self.monotonic())
        return self.asked_at[-1] >= self.free_at


def test_an_idle_relay_keeps_its_duty(real: Ledger) -> None:
    duties, stop = Timed(0.0), threading.Event()
    relay = Relay(real, [CallableSink(lambda message: None)], duties=duties)
    duties.monotonic = patient(relay, real, stop, 600.0)._passed
    relay.run(stop)
    gaps = [after - before for before, after in itertools.pairwise(duties.asked_at)]
    assert len(gaps) > 50
    assert max(gaps) <= 11


def test_a_waiting_relay_takes_over_without_a_notification(real: Ledger) -> None:
    real.enqueue("work")
    duties, stop, told_at = Timed(125.0), threading.Event(), list[float]()
    relay = Relay(real, [CallableSink(lambda message: told_at.append(outbox.waited), start="beginning")], duties=duties)
    outbox = patient(relay, real, stop, 600.0)
    duties.monotonic = outbox._passed
    relay.run(stop)
    [at] = told_at
    assert 125 <= at <= 136
