"""Groups in several processes: exact counts and one follow-up job, also if processes are killed or rows are locked."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import holdfast
from holdfast import Job, Ledger
from holdfast.errors import Conflict, Unavailable
from tests.contract.builders import held
from tests.integration.conftest import Opener
from tests.support.histories import problems
from tests.support.processes import Program
from tests.support.waiting import wait_until

THEN = {"kind": "publish", "queue": "after"}
ON_DEAD = {"kind": "alarm", "queue": "after"}
POLICY = {"lease_ttl": "2s", "heartbeat_interval": "1s", "missed_beats_max": 1, "backoff_base": "100ms", "attempts_max": 50}


def join(ledger: Ledger, count: int, group: str = "import") -> list[Job]:
    item = {"kind": "load", "queue": "load", "group": group, "policy": POLICY}
    return ledger.enqueue_many([item] * count)


def follow_ups(ledger: Ledger) -> list[str]:
    return sorted(job.kind for job in ledger.list(queue="after", limit=100))


def kill_often(ledger: Ledger, url: str, *, jobs: int, processes: int, lives: int) -> None:
    ledger.group("import", then=THEN, on_dead=ON_DEAD)
    join(ledger, jobs)
    ledger.close_group("import")
    for life in range(lives):
        with ExitStack() as stack:
            programs = [stack.enter_context(Program("grouped", url, f"w{life}-{number}")) for number in range(processes)]
            for program in programs:
                assert program.answer() == ["ready"]
            for program in programs:
                program.answer()
                program.kill()  # it is ending its next job, or adds its changes to the counts
    with ExitStack() as stack:
        for number in range(processes):
            stack.enter_context(Program("grouped", url, f"last-{number}"))
        group = ledger.wait_group("import", timeout=120)
        while group.failed:  # a process was killed before it could replay the job
            ledger.replay_group("import")
            group = ledger.wait_group("import", timeout=120)
        wait_until(lambda: ledger.get_group("import").then_job is not None, seconds=30, what="the follow-up job")
    assert (group.done, group.total, group.succeeded, group.live) == (True, jobs, jobs, 0)
    assert follow_ups(ledger) == ["alarm", "publish"]
    assert problems(ledger) == []


def test_a_group_makes_its_follow_up_jobs_once_though_workers_are_killed(store_url: str, real: Ledger) -> None:
    kill_often(real, store_url, jobs=120, processes=3, lives=2)


@pytest.mark.torture
def test_a_group_makes_its_follow_up_jobs_once_though_many_workers_are_killed(store_url: str, real: Ledger) -> None:
    kill_often(real, store_url, jobs=2_000, processes=6, lives=20)


@pytest.mark.parametrize("size", [1, 7, 300])
def test_concurrent_ends_make_one_follow_up_job_at_once(store_url: str, opened: Opener, size: int) -> None:
    """No sweep is needed: the process that sees the last end makes the job."""
    sessions = 8
    ledgers = [opened(store_url) for _ in range(sessions)]
    ledger = ledgers[0]
    ledger.group("import", then=THEN, on_dead=ON_DEAD)
    jobs = [join(ledger, 1, "import") for _ in range(size)]
    ledger.close_group("import")
    claimed = [job for _ in jobs for job in ledger.claim("w", ["load"], start=True)]
    start = threading.Barrier(sessions)

    def end(session: int) -> None:
        start.wait()
        for job in claimed[session::sessions]:
            ledgers[session].complete(held(job), None)

    with ThreadPoolExecutor(sessions) as pool:
        list(pool.map(end, range(sessions)))
    group = ledger.get_group("import")
    assert (group.done, group.succeeded) == (True, size)
    assert follow_ups(ledger) == ["publish"]
    assert group.then_job is not None


def test_jobs_that_join_while_the_group_is_closed_are_in_it_or_refused(store_url: str, opened: Opener) -> None:
    sessions = 6
    ledgers = [opened(store_url) for _ in range(sessions)]
    for round_ in range(10):
        name = f"import-{round_}"
        ledgers[0].group(name, then=THEN)
        start = threading.Barrier(sessions)

        def enter(session: int, name: str = name, start: threading.Barrier = start) -> int:
            start.wait()
            if session == 0:
                ledgers[0].close_group(name)
                return 0
            joined = 0
            with contextlib.suppress(Conflict):  # it is closed
                for _ in range(20):
                    ledgers[session].enqueue("load", queue=name, group=name)
                    joined += 1
            return joined

        with ThreadPoolExecutor(sessions) as pool:
            joined = sum(pool.map(enter, range(sessions)))
        assert ledgers[0].get_group(name).total == joined == sum(ledgers[0].counts().get(name, {}).values())


def test_a_process_that_dies_after_the_last_end_leaves_the_follow_up_job_to_the_sweep(
    store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, sweeping = opened(store_url), opened(store_url)
    dying.group("import", then=THEN)
    join(dying, 2)
    monkeypatch.setattr(dying._pipeline._group_counts, "update", lambda: None)  # killed between its commit and the next one
    dying.close_group("import")
    for job in dying.claim("w", ["load"], limit=2, start=True):
        dying.complete(held(job), None)
    assert follow_ups(sweeping) == []
    assert (sweeping.get_group("import").live, sweeping.wait_group("import", timeout=0).done) == (0, False)
    assert sweeping.wants_sweeping("me")
    assert sweeping.sweep() == {"enqueued": 1}
    assert sweeping.wait_group("import", timeout=60).then_job is not None
    assert follow_ups(sweeping) == ["publish"]
    assert sweeping.sweep() == {}


def test_an_open_transaction_that_joins_delays_only_the_close(pg_url: str, on_postgres: Ledger, opened: Opener) -> None:
    ledger = on_postgres
    ledger.group("import", then=THEN)
    url, _, schema = pg_url.partition("?schema=")
    with psycopg.connect(url) as connection:
        ledger.enqueue("load", queue="load", group="import", connection=connection)
        join(ledger, 100)
        for job in ledger.claim("w", ["load"], limit=100, start=True):
            ledger.complete(held(job), None)
        assert ledger.get_group("import").succeeded == 100
        with pytest.raises(Unavailable) as refused:
            ledger.close_group("import")
        assert refused.value.locked
        assert ledger.get_group("import").closed_at is None
        connection.commit()
    assert ledger.close_group("import").total == 101
    [job] = ledger.claim("w", ["load"], start=True)
    ledger.complete(held(job), None)
    assert follow_ups(ledger) == ["publish"]
    assert schema


def test_a_rolled_back_transaction_joins_nothing(store_url: str, pg_url: str, on_postgres: Ledger) -> None:
    on_postgres.group("import")
    with psycopg.connect(pg_url.partition("?")[0]) as connection:
        on_postgres.enqueue("load", group="import", connection=connection)
        connection.rollback()
    assert on_postgres.close_group("import").total == 0


def test_a_locked_group_delays_no_end(pg_url: str, on_postgres: Ledger) -> None:
    on_postgres.group("import", then=THEN)
    join(on_postgres, 100)
    on_postgres.close_group("import")
    url, _, schema = pg_url.partition("?schema=")
    with psycopg.connect(url) as other_session:
        other_session.execute(f'SELECT id FROM "{schema}".groups FOR UPDATE')
        for job in on_postgres.claim("w", ["load"], limit=100, start=True):
            on_postgres.complete(held(job), None)
        group = on_postgres.get_group("import")
        assert (group.done, group.live, group.succeeded, group.then_job) == (False, 0, 100, None)
        assert on_postgres.sweep() == {}
        assert not on_postgres.wait_group("import", timeout=0.01).done
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(on_postgres.wait_group, "import", timeout=60)
        assert on_postgres.sweep() == {"enqueued": 1}
        group = waiting.result()
    assert (group.done, group.then_job) == (True, on_postgres.list(queue="after")[0].id)
    assert follow_ups(on_postgres) == ["publish"]


def test_replays_at_the_same_time_take_one_place(store_url: str, opened: Opener) -> None:
    ledgers = [opened(store_url) for _ in range(4)]
    ledgers[0].group("import", then=THEN)
    join(ledgers[0], 1)
    [job] = ledgers[0].claim("w", ["load"], start=True)
    ledgers[0].fail(held(job), "no", retryable=False)
    ledgers[0].close_group("import")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda ledger: ledger.replay(job.id), ledgers))
    group = ledgers[0].get_group("import")
    assert (group.total, group.live, group.failed) == (1, 1, 0)
    with holdfast.open(store_url) as ledger:
        [again] = ledger.claim("w", ["load"], start=True)
        ledger.complete(held(again), None)
    assert follow_ups(ledgers[0]) == ["publish"]


def test_a_group_of_groups_never_loses_one_that_is_made_or_done_while_it_is_closed(store_url: str, opened: Opener) -> None:
    """Children are made while their parent is closed by another process, and closed and ended while it is closed again."""
    ledger, other = opened(store_url), opened(store_url)
    results = set()
    with ThreadPoolExecutor(2) as threads:
        for number in range(30):
            parent, child = f"parent-{number}", f"child-{number}"
            ledger.group(parent, then=THEN)
            start = threading.Barrier(2)

            def make(parent: str = parent, child: str = child, start: threading.Barrier = start) -> bool:
                start.wait()
                with contextlib.suppress(Conflict):
                    ledger.group(child, then={"kind": "load", "queue": "load", "group": parent})
                    return True
                return False

            def close(parent: str = parent, start: threading.Barrier = start) -> bool:
                start.wait()
                with contextlib.suppress(Conflict):
                    other.close_group(parent)
                    return True
                return False

            is_made, is_closed = (one.result() for one in (threads.submit(make), threads.submit(close)))
            assert is_made != is_closed
            results.add(is_made)
            if not is_made:
                continue
            again = threading.Barrier(2)

            def end(child: str = child, again: threading.Barrier = again) -> None:
                again.wait()
                ledger.close_group(child)

            ending, closing = threads.submit(end), threads.submit(close, parent, again)
            ending.result()
            if not closing.result():
                other.close_group(parent)
            found = other.get_group(parent)
            assert (found.total, found.then_job, other.get_group(child).last_error) == (1, None, None)
    assert results
