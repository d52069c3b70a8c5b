"""A process is stopped in the middle of a SQLite transaction: other writers are refused in bounded time, and reads continue."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Ledger, PolicyFields, Unavailable
from holdfast.program import fast_heartbeat
from holdfast.store.sqlite import write_lock
from tests.integration.conftest import Opener, opened
from tests.support import forked
from tests.support.histories import all_events, problems
from tests.support.processes import Program
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

__all__ = ["opened"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls of this process wait for a short time only."""
    monkeypatch.setattr(write_lock, "WAIT_SECONDS", 0.2)


@pytest.fixture
def frozen(sqlite_url: str) -> Iterator[Program]:
    """A stopped process that holds the write lock."""
    with Program("sqlite_writer", sqlite_url) as program:
        assert program.answer() == ["ready"]
        program.tell("stop")
        assert program.answer() == ["stopping"]
        wait_until(lambda: state_of(program.pid) == "T")
        yield program


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def thaw(program: Program) -> None:
    os.kill(program.pid, signal.SIGCONT)
    assert program.answer() == ["went on"]


def check_refused(ledger: Ledger, pid: int) -> None:
    with pytest.raises(Unavailable) as caught:
        ledger.enqueue("refused")
    assert caught.value.outcome == "none"
    assert caught.value.retryable
    assert f"process {pid} is in the middle of a transaction and is stopped" in caught.value.message
    assert f"kill -CONT {pid}" in caught.value.action


def locks_open(url: str) -> int:
    """How often this process has the ledger's lock file open."""
    lock = url.removeprefix("sqlite:///") + "-lock"
    found = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return found.count(lock)


def locks_on(url: str) -> list[str]:
    inode = Path(url.removeprefix("sqlite:///") + "-lock").stat().st_ino
    return [line for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]


def waiting_for(url: str) -> int:
    """The number of processes that wait for the write lock."""
    return sum("->" in line for line in locks_on(url))


def locked(url: str) -> bool:
    return any("->" not in line for line in locks_on(url))


def findings(ledger: Ledger) -> dict[str, str]:
    return {finding.code: finding.words for finding in ledger.diagnose().findings}


@pytest.fixture
def live(sqlite_url: str, opened: Opener) -> Ledger:
    """A ledger with a job in it, opened before anything is stopped."""
    ledger = opened(sqlite_url)
    ledger.enqueue("before")
    return ledger


def test_a_writer_is_refused_and_the_stopped_process_is_named(
    short: None, live: Ledger, frozen: Program, sqlite_url: str
) -> None:
    for _ in range(5):
        check_refused(live, frozen.pid)
    # Only one thread waits, also after several refusals.
    assert locks_open(sqlite_url) == 2
    assert f"process {frozen.pid} has the write lock and is stopped" in findings(live)["writer"]
    thaw(frozen)
    assert "writer" not in findings(live)
    job = live.enqueue("after")
    frozen.tell("enqueue")
    assert frozen.answer() == ["enqueued", job.id + 1]
    assert [found.kind for found in live.list()] == ["before", "after", "later"]
    assert locks_open(sqlite_url) == 2


def test_readers_continue(short: None, live: Ledger, frozen: Program, opened: Opener, sqlite_url: str) -> None:
    check_refused(live, frozen.pid)
    late = opened(sqlite_url)
    for ledger in (live, late):
        assert ledger.counts() == {"default": {"queued": 1}}
        assert ledger.get(1).kind == "before"
        assert [event.type for event in ledger.follow(timeout=0.1)] == ["enqueued"]


def test_other_writers_continue_when_the_stopped_process_ends(short: None, live: Ledger, frozen: Program) -> None:
    check_refused(live, frozen.pid)
    frozen.kill()
    assert live.enqueue("after").id == 2
    assert problems(live) == []


def test_a_waiting_caller_gets_the_lock_when_the_process_continues(live: Ledger, frozen: Program, sqlite_url: str) -> None:
    """Waiting callers need not repeat their calls, and one thread waits for all threads of a process."""
    with ThreadPoolExecutor(4) as pool:
        calls: list[Callable[[], Any]] = [
            lambda: live.enqueue("waited"),
            lambda: live.pause("q"),
            lambda: live.take_duty("d", "h", ttl="5s"),
        ]
        waiting = [pool.submit(call) for call in calls]
        wait_until(lambda: waiting_for(sqlite_url), what="a thread that waits for the lock")
        assert not any(future.done() for future in waiting)
        thaw(frozen)
        assert waiting[0].result(30).id == 2
        for future in waiting:
            future.result(30)


def test_a_lock_that_is_granted_after_its_caller_left_is_released(
    short: None, live: Ledger, frozen: Program, opened: Opener, sqlite_url: str
) -> None:
    other = opened(sqlite_url)
    check_refused(live, frozen.pid)
    check_refused(other, frozen.pid)
    thaw(frozen)
    # `live` gets no further call, and does not block other processes.
    wait_until(lambda: not locked(sqlite_url) and not waiting_for(sqlite_url))
    frozen.tell("enqueue")
    assert frozen.answer()[0] == "enqueued"


def test_a_refusal_names_the_callers_own_open_transaction(short: None, live: Ledger, sqlite_url: str) -> None:
    """The transaction has SQLite's own lock, and the process that waits for it has the lock file. The transaction is named."""
    foreign = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    foreign.execute("BEGIN IMMEDIATE")
    with holdfast.open(sqlite_url) as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.enqueue, "waits")
        wait_until(lambda: locked(sqlite_url), what="one that waits for the other transaction")
        with pytest.raises(Unavailable, match="this process itself is in the middle of a transaction"):
            live.enqueue("refused")
        foreign.execute("COMMIT")
        assert waiting.result(30).id == 2
    foreign.close()


def test_a_thread_that_writes_within_its_own_transaction_is_refused(live: Ledger) -> None:
    def work(session: object) -> None:
        live.enqueue("inner", queue="other")

    done = threading.Event()

    def call() -> None:
        with pytest.raises(Unavailable, match="already"):
            live._store.transact("work", work)
        done.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert done.is_set()
    assert live.counts() == {"default": {"queued": 1}}


BEAT = ["--id", "1", "--agent", "a", "--request-id", "r", "--db"]


def test_the_fast_heartbeat_does_not_wait_for_a_lock(live: Ledger, frozen: Program, sqlite_url: str) -> None:
    assert fast_heartbeat.try_heartbeat([*BEAT, sqlite_url]) is None


@pytest.mark.torture
def test_a_beat_from_the_command_line_is_refused(live: Ledger, frozen: Program, sqlite_url: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "holdfast", "task", "heartbeat", *BEAT, sqlite_url]
    ended = forked.run(words, tmp_path, os.environ, timeout_s=60)
    assert ended.code == 3
    assert f"kill -CONT {frozen.pid}" in ended.err


def test_a_short_freeze_costs_no_worker_a_job(live: Ledger, frozen: Program, sqlite_url: str, tmp_path: Path) -> None:
    """Longer than a beat and shorter than a lease, while workers hold jobs."""
    thaw(frozen)
    go = tmp_path / "go"
    policy: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 8, "lease_ttl": 8}
    jobs = {live.enqueue("let_go", {"go": str(go)}, policy=policy).id for _ in range(6)}

    def beaten(after: int) -> set[int]:
        return {event.job_id for event in live.events(after=after, limit=1_000) if event.type == "heartbeat"}

    with Fleet(sqlite_url) as fleet:
        for number in range(2):
            fleet.start(f"w{number}", threads=3)
        wait_until(lambda: beaten(0) == jobs)
        frozen.tell("stop")
        assert frozen.answer() == ["stopping"]
        stopped = live.position()
        wait_until(lambda: waiting_for(sqlite_url) >= 2, what="beats that wait for their turn")
        assert live.position() == stopped
        thaw(frozen)
        wait_until(lambda: beaten(stopped) == jobs)
        go.touch()
        wait_until(lambda: live.counts()["default"].get("succeeded") == len(jobs))
    assert {job.attempt for job in live.list(status="succeeded")} == {1}
    assert {event.type for event in all_events(live)} == {"enqueued", "claimed", "started", "heartbeat", "succeeded"}
    assert problems(live) == []


@pytest.mark.torture
def test_a_writer_is_refused_after_the_full_wait(live: Ledger, frozen: Program) -> None:
    for _ in range(3):
        check_refused(live, frozen.pid)
