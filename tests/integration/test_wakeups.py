"""Wake-ups: other processes learn of new work at once, at almost no cost while there is none."""

import time

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast import Ledger
from holdfast.store.base import Waiter
from tests.integration.conftest import Opener
from tests.support.histories import following_of
from tests.support.processes import Program
from tests.support.waiting import wait_until

PROMPT = 0.5
"""Far longer than a wake-up takes, and shorter than every poll."""


@pytest.mark.parametrize("mode", ["waiter", "follow"])
def test_another_process_is_woken_by_an_enqueue_at_once(store_url: str, real: Ledger, mode: str) -> None:
    with Program("listener", mode, store_url) as program:
        assert program.answer() == ["ready"]
        late = []
        for _ in range(5):
            # The process has read the line and is about to wait again. An early notification must not be lost.
            at = time.monotonic()
            job = real.enqueue("work")
            heard_at, what = program.answer()
            assert what in (True, job.id)
            late.append(heard_at - at)
            program.tell()
        # One of five may be late on a busy machine.
        assert sorted(late)[-2] < PROMPT


def test_a_process_that_ends_right_after_its_enqueue_has_sent_the_notification(store_url: str, real: Ledger) -> None:
    with Program("listener", "waiter", store_url) as listener, Program("listener", "enqueue", store_url) as enqueuer:
        assert listener.answer() == ["ready"]
        assert enqueuer.answer() == ["ready"]
        enqueuer.tell()
        at, _ = enqueuer.answer()
        heard_at, woken = listener.answer()
        assert woken
        assert heard_at - at < PROMPT


def test_idle_waiting_costs_almost_nothing(store_url: str, real: Ledger) -> None:
    real.enqueue("before")
    with Program("listener", "idle", store_url, 2) as program:
        [[waiting, following]] = program.answer()
        woken, events = program.answer()
    assert (woken, events) == (False, 0)
    assert waiting < 0.05 * 2
    assert following < 0.05 * 2


def test_other_verbs_wake_a_worker(real: Ledger) -> None:
    """Everything that makes a job ready: a release, a retry at once, an unpause, a replay."""
    real.enqueue("work")
    waiter = real.waiter()
    try:
        while waiter.wait(0.05):
            pass
        [job] = real.claim("worker", start=True)
        wake_all(waiter)
        real.release(job.fence)
        assert waiter.wait(5)
        [job] = real.claim("worker", start=True)
        wake_all(waiter)
        real.fail(job.fence, "again", retry_after=0)
        assert waiter.wait(5)
        real.pause("default")
        wake_all(waiter)
        real.unpause("default")
        assert waiter.wait(5)
        real.cancel(job.id)
        wake_all(waiter)
        real.replay(job.id)
        assert waiter.wait(5)
    finally:
        waiter.close()


def test_delayed_work_wakes_a_worker(real: Ledger) -> None:
    """The worker must learn the new time: of an enqueue with a delay, with and without a key, and of a retry with a backoff."""
    waiter = real.waiter()
    try:
        wake_all(waiter)
        real.enqueue("work", queue="later", delay=60)
        assert waiter.wait(5)
        wake_all(waiter)
        real.enqueue("work", queue="later", delay=60, dedupe_key="k")
        assert waiter.wait(5)
        real.enqueue("work")
        [job] = real.claim("worker", start=True)
        wake_all(waiter)
        real.fail(job.fence, "again", retry_after=60)
        assert waiter.wait(5)
        wait = real.until_ready(["default", "later"])
        assert wait is not None
        assert 0 < wait <= 60
    finally:
        waiter.close()


def test_changes_without_new_work_wake_no_process(store_url: str, real: Ledger, opened: Opener) -> None:
    """Idle workers sign in periodically."""
    other = opened(store_url)
    real.enqueue("work", delay=60)
    waiter = real.waiter()
    try:
        wake_all(waiter)
        other.take_duty("sweep", "a", ttl="10s")
        other.sign_in("a")
        other.sweep()
        # Longer than the interval of the slow poll.
        assert not waiter.wait(1.2)
        other.enqueue("work")
        assert waiter.wait(5)
    finally:
        waiter.close()


def test_a_job_in_the_callers_transaction_wakes_a_worker_at_the_commit(postgres_url: str, on_postgres: Ledger) -> None:
    waiter = on_postgres.waiter()
    try:
        wake_all(waiter)
        with psycopg.connect(postgres_url) as connection:
            on_postgres.enqueue("work", connection=connection)
            assert not waiter.wait(0.1)
            connection.commit()
            assert waiter.wait(5)
    finally:
        waiter.close()


def wake_all(waiter: Waiter) -> None:
    """Read all pending notifications."""
    while waiter.wait(0.1):
        pass


def listeners(connection: "psycopg.Connection[tuple[object, ...]]", channel: str) -> list[int]:
    """The server processes that wait for notifications of this ledger."""
    rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE query = %s", (f"LISTEN {channel}",)).fetchall()
    return [pid for (pid,) in rows if isinstance(pid, int)]


@pytest.mark.parametrize("mode", ["waiter", "follow"])
def test_a_terminated_listener_listens_again(pg_url: str, postgres_url: str, on_postgres: Ledger, mode: str) -> None:
    channel = pg_url.partition("schema=")[2]
    with Program("listener", mode, pg_url) as program, psycopg.connect(postgres_url, autocommit=True) as connection:
        assert program.answer() == ["ready"]
        [pid] = wait_until(lambda: listeners(connection, channel))
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        if mode == "waiter":
            # The waiter returns at once, because a notification may have been missed.
            assert program.answer()[1] is True
            program.tell()
        wait_until(lambda: set(listeners(connection, channel)) - {pid}, what="a new listener")
        at = time.monotonic()
        job = on_postgres.enqueue("work")
        heard_at, what = program.answer()
        assert what in (True, job.id)
        assert heard_at - at < 2.0


def test_following_polls_if_it_cannot_listen(pg_url: str, postgres_url: str, opened: Opener) -> None:
    """A role that gets no further connection. The ledger continues on the open ones."""
    opened(pg_url)
    schema = pg_url.partition("schema=")[2]
    role = f"r_{schema[3:20]}"
    names = {"role": sql.Identifier(role), "schema": sql.Identifier(schema)}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {role} LOGIN").format(**names))
        try:
            connection.execute(sql.SQL("GRANT ALL ON SCHEMA {schema} TO {role}").format(**names))
            connection.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}").format(**names))
            connection.execute(sql.SQL("GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}").format(**names))
            connection.execute(sql.SQL("GRANT CREATE ON DATABASE postgres TO {role}").format(**names))
            limited = holdfast.open(pg_url.replace("postgres@", f"{role}@"))
            try:
                first = limited.enqueue("first")
                count = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
                wait_until(lambda: limited.get(first.id), what="an idle connection")
                connection.execute(sql.SQL("ALTER ROLE {role} CONNECTION LIMIT 1").format(**names))
                following = following_of(limited)
                assert next(following).job_id == first.id
                for _ in range(2):
                    second = limited.enqueue("second")
                    at = time.monotonic()
                    assert next(following).job_id == second.id
                    assert time.monotonic() - at < 3.0
                assert listeners(connection, schema) == []
                assert connection.execute(count, (role,)).fetchone() != (0,)
                following.close()
            finally:
                limited.close()
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {role}").format(**names))
            connection.execute(sql.SQL("DROP ROLE {role}").format(**names))
