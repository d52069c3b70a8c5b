"""Outages of stores: calls raise a clear error, and succeed afterwards without help."""

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
from holdfast import Ledger, Unavailable
from tests.integration.conftest import Opener
from tests.support.histories import count_jobs, problems
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer


def test_calls_fail_during_a_server_crash_and_succeed_afterwards(restartable_server: PostgresServer) -> None:
    with holdfast.open(restartable_server.url) as ledger:
        ledger.enqueue_many([{"kind": "work"}] * 10)
        [held] = ledger.claim("worker", start=True)

        restartable_server.stop_immediate()
        for call in (
            lambda: ledger.enqueue("work"),
            lambda: ledger.enqueue("work", dedupe_key="k"),
            lambda: ledger.claim("worker"),
            lambda: ledger.heartbeat(held.fence),
            lambda: ledger.get(held.id),
            ledger.counts,
            ledger.sweep,
            lambda: ledger.pause("default"),
        ):
            with pytest.raises(Unavailable) as caught:
                call()
            assert caught.value.outcome == "none"

        restartable_server.start()
        after = ledger.enqueue("after")
        assert ledger.heartbeat(held.fence).rev == 4
        ledger.complete(held.fence)
        assert count_jobs(ledger) == 11
        seen = [event.job_id for event in ledger.follow(timeout=0.3)]
        assert after.id in seen
        assert problems(ledger) == []


def test_a_follower_continues_after_a_crash_of_the_server(restartable_server: PostgresServer) -> None:
    with holdfast.open(restartable_server.url) as ledger:
        first = ledger.enqueue("first")
        seen: list[int] = []
        failures: list[BaseException] = []

        def follow() -> None:
            after = 0
            while len(seen) < 2:
                try:
                    for event in ledger.follow(after, timeout=0.2):
                        seen.append(event.job_id)
                        after = event.pos
                except Unavailable as error:
                    failures.append(error)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        wait_until(lambda: seen == [first.id])
        restartable_server.stop_immediate()
        wait_until(lambda: failures, what="the follower hears of it")
        restartable_server.start()
        second = ledger.enqueue("second")
        follower.join(20)
        assert seen == [first.id, second.id]


def test_callers_on_many_threads_continue_after_a_crash(restartable_server: PostgresServer) -> None:
    """Acknowledged calls are there after recovery, and refused ones are not."""
    with holdfast.open(restartable_server.url) as ledger:
        ledger.enqueue("warm")
        stop = threading.Event()
        answered: set[int] = set()
        unknown: list[str] = []
        refused: list[str] = []
        surprises: list[BaseException] = []

        def work(number: int) -> None:
            count = 0
            while not stop.is_set():
                name = f"{number}-{count}"
                count += 1
                try:
                    answered.add(ledger.enqueue("work", {"name": name}).id)
                except Unavailable as error:
                    (unknown if error.outcome == "unknown" else refused).append(name)
                except BaseException as error:
                    surprises.append(error)
                    raise

        with ThreadPoolExecutor(8) as pool:
            for number in range(8):
                pool.submit(work, number)
            wait_until(lambda: len(answered) > 50)
            restartable_server.stop_immediate()
            wait_until(lambda: refused, what="a call is refused")
            restartable_server.start()
            before = len(answered)
            wait_until(lambda: len(answered) > before + 50, what="everybody goes on")
            stop.set()

        assert surprises == []
        after = 0
        found: dict[int, str] = {}
        while page := ledger.list(kind="work", after=after, limit=1_000):
            found |= {job.id: job.args["name"] for job in page}
            after = page[-1].id
        assert answered <= found.keys()
        assert set(found.values()).isdisjoint(refused)
        assert {found[id_] for id_ in found.keys() - answered} <= set(unknown)


def test_idle_connections_that_were_ended_are_replaced(on_postgres: Ledger, pg_url: str, postgres_url: str) -> None:
    job = on_postgres.enqueue("work")
    end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast'"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        acts: list[Any] = [
            lambda: on_postgres.get(job.id),
            lambda: on_postgres.enqueue("work"),
            lambda: on_postgres.enqueue("work", dedupe_key="k"),
            lambda: on_postgres.claim("worker"),
            on_postgres.counts,
            lambda: on_postgres.pause("default"),
            lambda: list(on_postgres.follow(timeout=0.1)),
            on_postgres.sweep,
        ]
        for act in acts:
            # Several idle connections, all of which are ended.
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: on_postgres.get(job.id), range(8)))
            admin.execute(end_all)
            act()
    assert on_postgres.counts() == {"default": {"claimed": 1, "queued": 2}}


def test_a_backend_ended_in_mid_transaction_is_run_again_or_reported(on_postgres: Ledger, postgres_url: str) -> None:
    on_postgres.enqueue("warm")
    ended: list[int] = []
    store = on_postgres._store
    transact = store.transact

    def cut(lane: Any, work: Any) -> Any:
        def worked(session: Any) -> Any:
            answer = work(session)
            if not ended:
                pid = session._cursor.execute("SELECT pg_backend_pid()").fetchone()[0]
                ended.append(pid)
                with psycopg.connect(postgres_url, autocommit=True) as admin:
                    admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            return answer

        return transact(lane, worked)

    store.transact = cut  # type: ignore[method-assign]
    refusal: Unavailable | None = None
    try:
        on_postgres.enqueue("cut", request_id="r")
    except Unavailable as error:
        refusal = error
    assert len(on_postgres.list(kind="cut")) == (1 if refusal is None else 0)
    assert refusal is None or refusal.outcome == "none"
    assert ended
    job = on_postgres.enqueue("cut", request_id="r")
    assert [found.id for found in on_postgres.list(kind="cut")] == [job.id]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, or None if mounting is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)],  # noqa: S607
        check=False,
        capture_output=True,
    )
    yield place
    if mounted.returncode == 0:
        subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S607


def fill(ledger: Ledger, place: Path) -> None:
    """Fill the disk until there is no space for another job."""
    if place.is_mount():
        with (place / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 4_096)
            except OSError:
                pass
    else:
        writer = ledger._store._writer  # type: ignore[attr-defined]
        writer.pragma("max_page_count", writer.pragma("page_count"))


def enqueue_until_refused(ledger: Ledger) -> tuple[int, Unavailable]:
    """Enqueue until a call is refused. Return the number of jobs and the error."""
    for made in range(10_000):
        try:
            ledger.enqueue("fill", {"pad": "x" * 2_000}, request_id=f"r{made}")
        except Unavailable as error:
            return made, error
    raise AssertionError("the disk is never full")


def make_room(ledger: Ledger, place: Path) -> None:
    if place.is_mount():
        (place / "ballast").unlink()
    else:
        writer = ledger._store._writer  # type: ignore[attr-defined]
        if writer is not None:
            writer.pragma("max_page_count", 2**30)


def test_a_full_disk_is_reported_and_reads_continue(small_disk: Path, opened: Opener) -> None:
    ledger = opened(f"sqlite:///{small_disk}/holdfast.db")
    job = ledger.enqueue("before")
    [held] = ledger.claim("worker", start=True)
    fill(ledger, small_disk)

    made, refusal = enqueue_until_refused(ledger)
    assert "full" in refusal.message
    assert refusal.action.startswith("Free space")
    for _ in range(3):
        with pytest.raises(Unavailable):
            ledger.enqueue_many([{"kind": "fill", "args": {"pad": "x" * 2_000}}] * 100)

    # Reads continue: they return all acknowledged jobs and no others.
    assert ledger.get(job.id).status == "running"
    assert count_jobs(ledger) == 1 + made
    assert len(list(ledger.follow(timeout=0.05))) == 3 + made

    make_room(ledger, small_disk)
    again = ledger.enqueue("fill", {"pad": "x" * 2_000}, request_id=f"r{made}")
    assert again.is_new
    ledger.complete(held.fence)
    assert count_jobs(ledger) == 2 + made
    assert problems(ledger) == []


def test_a_page_limit_is_reported_and_reads_continue(on_sqlite: Ledger, tmp_path: Path) -> None:
    """The same with a page limit, for accounts that may not mount a disk."""
    job = on_sqlite.enqueue("before")
    place = tmp_path / "nowhere"
    fill(on_sqlite, place)
    made, refusal = enqueue_until_refused(on_sqlite)
    assert refusal.outcome == "none"
    assert on_sqlite.get(job.id).status == "queued"
    assert count_jobs(on_sqlite) == 1 + made
    make_room(on_sqlite, place)
    on_sqlite.enqueue("fill", {"pad": "x" * 2_000}, request_id=f"r{made}")
    assert count_jobs(on_sqlite) == 2 + made
    assert problems(on_sqlite) == []


def test_a_call_waits_for_a_foreign_writer(on_sqlite: Ledger, sqlite_url: str) -> None:
    on_sqlite.enqueue("before")
    foreign = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    foreign.execute("BEGIN IMMEDIATE")
    begun = threading.Event()

    def enqueue() -> int:
        begun.set()
        return on_sqlite.enqueue("waited").id

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(enqueue)
        assert begun.wait(10)
        # Reads do not wait.
        for _ in range(20):
            assert on_sqlite.counts() == {"default": {"queued": 1}}
        assert not waiting.done()
        foreign.execute("COMMIT")
        assert waiting.result(10) == 2
    foreign.close()


@pytest.mark.torture
def test_a_foreign_writer_that_never_ends_is_reported(on_sqlite: Ledger, sqlite_url: str) -> None:
    on_sqlite.enqueue("before")
    foreign = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as caught:
        on_sqlite.enqueue("waited")
    assert caught.value.outcome == "none"
    foreign.execute("ROLLBACK")
    foreign.close()
    on_sqlite.enqueue("after")
    assert count_jobs(on_sqlite) == 2
