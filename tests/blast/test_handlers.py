"""Handlers that harm the process they run in do not affect the other jobs of their worker."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast import App, Job, Ledger
from tests.support.waiting import wait_until
from tests.worker.fleet import ROOT

APPS = ("tests.blast.programs.harmful:app", "tests.blast.programs.harmless:app")


@pytest.fixture
def ledger(store_url: str) -> Iterator[Ledger]:
    with holdfast.open(store_url) as ledger:
        yield ledger


@contextmanager
def working(url: str) -> "Iterator[subprocess.Popen[str]]":
    """A worker with one thread and one child process. It must stop in order when the block ends."""
    command = [sys.executable, "-m", "holdfast", "worker", "run", *APPS, "--threads", "1", "--processes", "1"]
    environment = {**os.environ, "HOLDFAST_URL": url}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        # Not communicate(): a fork of a handler keeps the other end open.
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def ended(ledger: Ledger, job: Job) -> Job:
    wait_until(lambda: ledger.get(job.id).finished_at is not None, seconds=60, what=str(ledger.events(job.id)))
    assert ledger.check(job.id) == []
    return ledger.get(job.id)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(("store_url", "where"), [("sqlite", "loop"), ("postgres", "thread")], indirect=["store_url"])
def test_a_fork_that_returns_from_its_handler_runs_no_other_job(
    ledger: Ledger, store_url: str, tmp_path: Path, where: str
) -> None:
    """Waiting jobs are run by the thread that forked, and not by its copy as well."""
    forks, ran = tmp_path / "forks", tmp_path / "ran"
    bad = ledger.enqueue(f"fork_in_{where}", {"log": str(forks), "lives": False}, priority=1)
    others = [ledger.enqueue(f"fine_in_{where}", {"log": str(ran), "n": n}) for n in range(20)]
    with working(store_url):
        assert ended(ledger, bad).status == "succeeded"
        assert [ended(ledger, job).result for job in others] == list(range(20))
        [fork] = wait_until(lambda: lines(forks))
        wait_until(lambda: not Path(f"/proc/{fork}").exists() or _state(fork) == "Z")
    assert sorted(map(int, lines(ran))) == list(range(20))


def _state(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_worker_ends_although_a_fork_of_its_handler_lives(ledger: Ledger, store_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = ledger.enqueue("fork_in_thread", {"log": str(log), "lives": True})
    with working(store_url):
        assert ended(ledger, job).status == "succeeded"
        [fork] = wait_until(lambda: lines(log))
    os.kill(int(fork), signal.SIGKILL)


@pytest.mark.parametrize("where", ["thread", "loop", "process"])
def test_a_worker_recovers_after_a_handler_ran_out_of_memory(tmp_path: Path, where: str) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with holdfast.open(url) as ledger, working(url):
        bad = ledger.enqueue(f"in_{where}", {"harm": "eat_memory"})
        assert ended(ledger, bad).last_error["type"] == "MemoryError"
        others = [ledger.enqueue(f"fine_in_{kind}", {"log": os.devnull, "n": 1}) for kind in ("thread", "loop")]
        assert [ended(ledger, job).result for job in (*others, ledger.enqueue("plain"))] == [1, 1, "True"]


@pytest.mark.parametrize(
    ("harm", "status"),
    [
        ("lose_environment", "succeeded"),
        ("leak_descriptors", "succeeded"),
        ("close_output", "succeeded"),
        ("garble", "dead_lettered"),
        ("pour", "dead_lettered"),
    ],
)
def test_a_handler_that_harms_its_child_process_harms_no_other_job(tmp_path: Path, harm: str, status: str) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with holdfast.open(url) as ledger, working(url):
        assert ended(ledger, ledger.enqueue("in_process", {"harm": harm})).status == status
        assert ended(ledger, ledger.enqueue("plain")).result == "True"


@pytest.mark.parametrize("harm", ["close_output", "leave_a_thread"])
def test_a_worker_continues_and_ends_after_a_handler_harmed_its_process(tmp_path: Path, harm: str) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with holdfast.open(url) as ledger, working(url):
        assert ended(ledger, ledger.enqueue("in_thread", {"harm": harm})).status == "succeeded"
        assert ended(ledger, ledger.enqueue("fine_in_thread", {"log": os.devnull, "n": 1})).result == 1


def test_a_worker_with_a_blocked_loop_claims_no_async_jobs(tmp_path: Path) -> None:
    """Jobs that the loop has not begun are released, and no more are claimed for it until it runs again."""
    app = App(f"sqlite:///{tmp_path}/holdfast.db")
    began, free = threading.Event(), threading.Event()

    @app.handler()
    async def blocks() -> None:
        began.set()
        free.wait(60)

    @app.handler()
    async def waits(n: int) -> int:
        return n

    @app.handler(concurrency=1)
    async def waits_alone(n: int) -> int:
        return n

    @app.handler()
    def plain() -> int:
        return 7

    blocker = app.enqueue(blocks)
    with app.worker(name="w") as worker:
        worker.start()
        wait_until(began.is_set)
        waiting = [app.enqueue(handler, n=1) for handler in (waits, waits_alone)]
        wait_until(lambda: [app.ledger.get(job.id).releases for job in waiting] == [1, 1])
        # The worker has claimed again since then, and has claimed neither job.
        assert ended(app.ledger, app.enqueue(plain)).result == 7
        assert [app.ledger.get(job.id).status for job in (blocker, *waiting)] == ["running", "queued", "queued"]
        free.set()
        assert [ended(app.ledger, job).result for job in waiting] == [1, 1]
    app.close()


def test_a_worker_that_cannot_start_a_process_fails_no_job(tmp_path: Path) -> None:
    """A thread has used up all descriptors: jobs for child processes are released and the attempt is not counted."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with holdfast.open(url) as ledger, working(url):
        assert ended(ledger, ledger.enqueue("in_thread", {"harm": "leak_descriptors"})).status == "succeeded"
        job = ledger.enqueue("plain")
        wait_until(lambda: ledger.get(job.id).releases > 0)
        assert ended(ledger, ledger.enqueue("in_thread", {"harm": "mend_descriptors"})).status == "succeeded"
        assert ended(ledger, job).result == "True"
