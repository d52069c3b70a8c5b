"""Transactions that conflict: callers see no error, and nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from psycopg import sql

from holdfast import Beat, Fence, HoldfastError, Ledger, Status
from tests.integration.conftest import Opener
from tests.support.histories import all_events, problems
from tests.support.processes import fleet
from tests.support.waiting import wait_until


def hold(ledger: Ledger, count: int, *, start: bool = True) -> list[Fence]:
    ledger.enqueue_many([{"kind": "work"}] * count)
    return [job.fence for job in ledger.claim("worker", limit=count, start=start)]


def test_batches_of_beats_in_opposite_order_all_succeed(store_url: str, real: Ledger) -> None:
    fences = hold(real, 100)
    wire = [[fence.job_id, fence.attempt, fence.token, fence.worker] for fence in fences]

    answers = fleet("workers.beat_opposed", 4, url=store_url, fences=wire, rounds=15)

    assert answers == [[100 * 15, 0]] * 4
    assert sum(event.type == "heartbeat" for event in all_events(real)) == 4 * 100 * 15
    assert problems(real) == []


def test_mixed_verbs_in_opposite_order_from_two_sessions_all_succeed(store_url: str, opened: Opener) -> None:
    """Groups of several statements on the same jobs in opposite order, so that they can deadlock."""
    ledgers = [opened(store_url), opened(store_url)]
    fences = hold(ledgers[0], 64)
    answered: list[tuple[int, int]] = []
    refused: list[HoldfastError] = []
    broken: list[BaseException] = []

    def visit(ledger: Ledger, fence: Fence, number: int) -> None:
        verbs: list[Any] = [
            lambda: ledger.heartbeat(fence),
            lambda: ledger.heartbeat(fence, progress=number),
            lambda: ledger.assist(fence.job_id),
            lambda: ledger.unassist(fence.job_id),
        ]
        for verb in verbs[number % 4 :] + verbs[: number % 4]:
            try:
                answered.append((fence.job_id, verb().rev))
            except HoldfastError as refusal:
                refused.append(refusal)
            except BaseException as error:
                broken.append(error)
                raise

    with ThreadPoolExecutor(32) as pool:
        for number in range(64):
            pool.submit(visit, ledgers[0], fences[number], number)
            pool.submit(visit, ledgers[1], fences[-1 - number], number)

    assert broken == []
    assert {refusal.code for refusal in refused} <= {"invalid_transition"}
    # Every answer has its own event, and every event after enqueue, claim and start was answered.
    events = {(event.job_id, event.rev) for event in all_events(ledgers[0]) if event.rev > 3}
    assert len(answered) == len(set(answered))
    assert set(answered) == events
    assert problems(ledgers[0]) == []


def test_a_deadlock_with_a_foreign_transaction_is_retried(pg_url: str, postgres_url: str, on_postgres: Ledger) -> None:
    low, high = hold(on_postgres, 2)
    lock = sql.SQL("SELECT 1 FROM {} WHERE id = %s FOR UPDATE").format(sql.Identifier(pg_url.partition("schema=")[2], "jobs"))
    answers: list[Any] = []
    with psycopg.connect(postgres_url) as rival, psycopg.connect(postgres_url, autocommit=True) as watcher:
        rival.execute("SET deadlock_timeout = '60s'")
        rival.execute(lock, (high.job_id,))
        beating = threading.Thread(target=lambda: answers.extend(on_postgres.heartbeat_many([high, low])))
        beating.start()
        # The ledger has locked the lower id and waits for the higher one. Now the other transaction asks for the lower one.
        stuck = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        wait_until(lambda: watcher.execute(stuck).fetchone())
        rival.execute(lock, (low.job_id,))
        # This returns only because the server ended the ledger's transaction.
        rival.commit()
        beating.join(30)

    assert [type(answer) for answer in answers] == [Beat, Beat]
    assert [len(on_postgres.events(fence.job_id)) for fence in (low, high)] == [4, 4]
    assert problems(on_postgres) == []


def test_reads_succeed_while_transactions_fail(real: Ledger) -> None:
    """A rollback in one thread clears caches that another thread may be reading."""
    hold(real, 1_000)
    reading = threading.Event()

    def fail_often() -> int:
        count = 0
        while not reading.is_set():
            try:
                real._store.transact("work", lambda session: 1 // 0)
            except ZeroDivisionError:
                count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        failures = pool.submit(fail_often)
        readers = [pool.submit(lambda: [len(real.list(limit=1_000)) for _ in range(25)]) for _ in range(2)]
        try:
            assert [reader.result(60) for reader in readers] == [[1_000] * 25] * 2
        finally:
            reading.set()
        assert failures.result(60) > 10


def test_more_readers_than_server_connections_all_succeed(real: Ledger) -> None:
    job = real.enqueue("work")
    together = threading.Barrier(450)

    def read() -> Status:
        together.wait(60)
        return real.get(job.id).status

    with ThreadPoolExecutor(450) as pool:
        answers = [pool.submit(read) for _ in range(450)]
        assert {answer.result(60) for answer in answers} == {Status.QUEUED}
