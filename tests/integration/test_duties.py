"""Many processes want a duty, and at most one has it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg

from holdfast import Ledger
from tests.integration.conftest import Opener
from tests.support.processes import fleet
from tests.support.waiting import wait_until


def test_one_of_many_processes_gets_the_duty(store_url: str, real: Ledger) -> None:
    answers = fleet("workers.take_duty", 8, url=store_url, rounds=50)
    assert [sum(taken) for taken in zip(*answers, strict=True)] == [1] * 50


def test_a_duty_never_has_two_holders(store_url: str, opened: Opener) -> None:
    """Threads of two ledgers take and drop the duty in turn.

    A counter that only the holder changes shows whether there were two.
    """
    ledgers = [opened(store_url), opened(store_url)]
    inside = threading.Lock()
    turns: list[str] = []

    def work(number: int) -> None:
        ledger, name, done = ledgers[number % 2], f"thread-{number}", 0
        while done < 5:
            if ledger.take_duty("turn", name, ttl="1h"):
                assert inside.acquire(blocking=False), "two holders"
                turns.append(name)
                assert ledger.take_duty("turn", name, ttl="1h"), "lost while held"
                inside.release()
                ledger.drop_duty("turn", name)
                done += 1

    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(work, number) for number in range(8)]:
            call.result(120)
    assert sorted(turns) == sorted(f"thread-{number}" for number in range(8) for _ in range(5))


def test_a_process_that_waited_for_the_row_sees_the_holder(pg_url: str, postgres_url: str, opened: Opener) -> None:
    """An open transaction has taken an expired duty. The second process waits for it and is refused."""
    ledger, schema = opened(pg_url), pg_url.partition("schema=")[2]
    ledger.take_duty("sweep", "old", ttl="1s")
    with psycopg.connect(postgres_url) as connection, ThreadPoolExecutor(1) as pool:
        taken = f"UPDATE {schema}.duties SET holder = 'first', expires_at = now() + interval '1 hour'"
        connection.execute(taken.encode())
        second = pool.submit(ledger.take_duty, "sweep", "second", ttl="1s")
        with psycopg.connect(postgres_url, autocommit=True) as watcher:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            wait_until(lambda: watcher.execute(waiting, (f"%{schema}.duties%",)).fetchone(), what="the second asker to wait")
        connection.commit()
        assert second.result(30) is False
