"""Files of a SQLite ledger are deleted, moved, replaced or made read-only while it is open: no later write is acknowledged."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import App, Ledger, Unavailable, ValidationError
from holdfast.store.session import Session
from tests.support.histories import count_jobs, problems
from tests.support.processes import Program
from tests.support.waiting import wait_until
from tests.worker.conftest import became, ended

Harm = Callable[[Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The path of a ledger, in a folder of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "holdfast.db"


@pytest.fixture
def ledger(place: Path) -> Iterator[Ledger]:
    """A ledger whose folder seems to be old, so that one look at the folder is enough."""
    with holdfast.open(f"sqlite:///{place}") as ledger:
        os.utime(place.parent, (0, 0))
        ledger.drop_duty("none", "none")
        yield ledger


def beside(place: Path, suffix: str) -> Path:
    return Path(f"{place}{suffix}")


def delete(suffix: str) -> Harm:
    return lambda place: beside(place, suffix).unlink()


def replace(suffix: str) -> Harm:
    """Replace a file by a copy. A copied database is a valid ledger with the same id."""

    def harm(place: Path) -> None:
        copy = place.with_name("copy")
        shutil.copyfile(beside(place, suffix), copy)
        copy.rename(beside(place, suffix))

    return harm


def move(suffix: str) -> Harm:
    return lambda place: beside(place, suffix).rename(place.with_name(f"away{suffix}"))


def move_back(suffix: str) -> Harm:
    return lambda place: place.with_name(f"away{suffix}").rename(beside(place, suffix))


def move_folder(place: Path) -> None:
    place.parent.rename(place.parent.with_name("elsewhere"))


def move_folder_back(place: Path) -> None:
    place.parent.with_name("elsewhere").rename(place.parent)


HARMS: dict[str, tuple[Harm, str]] = {
    **{f"{harm.__name__}{suffix}": (harm(suffix), suffix) for harm in (delete, replace, move) for suffix in ("", "-wal", "-shm")},
    "move_folder": (move_folder, ""),
}
MENDED: dict[str, tuple[Harm, Harm]] = {
    **{suffix or "database": (move(suffix), move_back(suffix)) for suffix in ("", "-wal", "-shm")},
    "folder": (move_folder, move_folder_back),
}


def refused(call: Callable[[], Any]) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("harm", HARMS)
def test_a_lost_file_is_noticed_by_writes_and_reads(ledger: Ledger, place: Path, harm: str) -> None:
    do, suffix = HARMS[harm]
    job = ledger.enqueue("before")
    ledger.enqueue("before")
    [held] = ledger.claim("worker", start=True)
    fence = held.fence
    do(place)

    # The first write is not acknowledged, before or after the next look at the files.
    first = refused(lambda: ledger.enqueue("after"))
    calls: dict[str, Callable[[], Any]] = {
        "enqueue": lambda: ledger.enqueue("after"),
        "keyed": lambda: ledger.enqueue("after", dedupe_key="k"),
        "claim": lambda: ledger.claim("worker"),
        "heartbeat": lambda: ledger.heartbeat(fence),
        "complete": lambda: ledger.complete(fence),
        "get": lambda: ledger.get(job.id),
        "counts": ledger.counts,
        "sweep": ledger.sweep,
        "pause": lambda: ledger.pause("default"),
        "waiter": ledger.waiter,
        "follow": lambda: next(ledger.follow(timeout=1)),
    }
    for error in [refused(call) for call in calls.values()]:
        assert error.outcome == "none"
    for error in (first, refused(ledger.counts)):
        assert f"{place}{suffix} is" in error.message
        assert "deleted, moved or replaced" in error.message
        assert error.action.startswith("Put the original file back" if not suffix else "Stop every process")
        assert error.retryable


@pytest.mark.parametrize("harm", ["delete", "move", "move_folder"])
def test_a_lost_database_is_not_created_again(ledger: Ledger, place: Path, harm: str) -> None:
    ledger.enqueue("before")
    HARMS[harm][0](place)
    for call in (lambda: ledger.enqueue("after"), ledger.counts, ledger.waiter, ledger.position):
        refused(call)
    assert not place.exists()


@pytest.mark.parametrize("what", MENDED)
def test_a_file_that_comes_back_is_used_again(ledger: Ledger, place: Path, what: str) -> None:
    away, back = MENDED[what]
    jobs = [ledger.enqueue("before").id]
    away(place)
    first = refused(lambda: ledger.enqueue("first", request_id="first"))
    for number in range(3):
        assert refused(lambda: ledger.enqueue("refused", request_id=f"r{number}")).outcome == "none"  # noqa: B023
    refused(ledger.counts)
    back(place)
    jobs.append(ledger.enqueue("first", request_id="first").id)
    assert ledger.enqueue("first", request_id="first").id == jobs[-1]
    jobs.append(ledger.enqueue("after").id)
    assert [job.id for job in ledger.list()] == jobs
    assert first.outcome in ("none", "unknown")
    assert problems(ledger) == []


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_lost_in_the_middle_of_a_transaction_is_an_unknown_outcome(ledger: Ledger, place: Path, harm: str) -> None:
    ledger.enqueue("before")

    def work(session: Session) -> None:
        HARMS[harm][0](place)

    assert refused(lambda: ledger._store.transact("work", work)).outcome == "unknown"
    assert refused(lambda: ledger.enqueue("after")).outcome == "none"


def test_closing_the_ledger_saves_commits_from_a_deleted_log(place: Path) -> None:
    with holdfast.open(f"sqlite:///{place}") as ledger:
        jobs = [ledger.enqueue("before").id for _ in range(20)]
        beside(place, "-wal").unlink()
        refused(lambda: ledger.enqueue("after"))
    with holdfast.open(f"sqlite:///{place}") as ledger:
        assert [job.id for job in ledger.list(kind="before")] == jobs
        assert problems(ledger) == []


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
def test_a_process_that_has_a_deleted_file_open_can_save_it(place: Path, suffixes: tuple[str, ...]) -> None:
    """The steps of the operating guide: stop, copy, kill."""
    url = f"sqlite:///{place}"
    with Program("sqlite_writer", url) as program:
        assert program.answer() == ["ready"]
        for number in range(1, 6):
            program.tell("enqueue")
            assert program.answer() == ["enqueued", number]
        for suffix in suffixes:
            beside(place, suffix).unlink()
        program.tell("enqueue")
        assert program.answer()[0] == "unavailable"
        os.kill(program.pid, signal.SIGSTOP)
        for fd in Path(f"/proc/{program.pid}/fd").iterdir():
            was = str(fd.readlink()).removesuffix(" (deleted)")
            if was in (str(place), f"{place}-wal") and not Path(was).exists():
                shutil.copyfile(fd, was)
        program.kill()
    with holdfast.open(url) as ledger:
        assert [job.id for job in ledger.list()][:5] == [1, 2, 3, 4, 5]
        assert problems(ledger) == []


def test_no_ledger_is_created_next_to_a_log_without_a_database(ledger: Ledger, place: Path) -> None:
    """SQLite would delete the log, with commits that are not in the database yet."""
    job = ledger.enqueue("before")
    move("")(place)
    with pytest.raises(Unavailable, match="-wal") as caught:
        holdfast.open(f"sqlite:///{place}")
    assert "Put the database back" in caught.value.action
    move_back("")(place)
    with holdfast.open(f"sqlite:///{place}") as again:
        assert again.get(job.id).status == "queued"


def test_a_connection_to_a_replaced_file_is_refused(place: Path) -> None:
    with holdfast.open(f"sqlite:///{place}") as ledger:
        ledger.enqueue("before")
    old = apsw.Connection(str(place))
    old.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018 - opens the file
    replace("")(place)
    for suffix in ("-wal", "-shm"):
        beside(place, suffix).unlink(missing_ok=True)
    with holdfast.open(f"sqlite:///{place}") as ledger:
        old.execute("BEGIN IMMEDIATE")
        with pytest.raises(ValidationError, match="no longer names"):
            ledger.enqueue("lost", connection=old)
        old.execute("ROLLBACK")
    old.close()


def test_closing_a_second_ledger_keeps_the_locks_of_the_first(ledger: Ledger, place: Path) -> None:
    """Closing any descriptor of a file drops the locks that the process has on it, those of SQLite too."""

    def locks() -> list[str]:
        ours = f" {os.getpid()} "
        return [
            line for line in Path("/proc/locks").read_text().splitlines() if ours in line and f":{place.stat().st_ino} " in line
        ]

    ledger.enqueue("before")
    before = len(locks())
    assert before
    with holdfast.open(f"sqlite:///{place}") as second:
        assert second.counts()
        assert len(locks()) == before
    assert len(locks()) == before


@pytest.mark.parametrize("harm", [delete, replace])
def test_a_new_lock_file_is_locked(ledger: Ledger, place: Path, harm: Callable[[str], Harm]) -> None:
    ledger.enqueue("before")
    harm("-lock")(place)

    def work(session: Session) -> bool:
        if not beside(place, "-lock").exists():
            return False
        with beside(place, "-lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    wait_until(lambda: ledger._store.transact("work", work), what="a lock on the new file")
    with Program("sqlite_writer", f"sqlite:///{place}") as other:
        assert other.answer() == ["ready"]
        other.tell("enqueue")
        assert other.answer() == ["enqueued", 2]
        assert ledger.enqueue("after").id == 3


@pytest.mark.parametrize("harm", [delete, replace])
def test_a_waiter_wakes_without_its_wake_file(ledger: Ledger, place: Path, harm: Callable[[str], Harm]) -> None:
    waiter = ledger.waiter()
    try:
        while waiter.wait(0.1):
            pass
        for suffix in ("-wake", "-tail"):
            harm(suffix)(place)
        with Program("sqlite_writer", f"sqlite:///{place}") as other:
            assert other.answer() == ["ready"]
            other.tell("enqueue")
            assert other.answer() == ["enqueued", 1]
            assert waiter.wait(10)
    finally:
        waiter.close()


def test_a_waiter_is_refused_while_its_files_are_gone(ledger: Ledger, place: Path) -> None:
    waiter = ledger.waiter()
    try:
        move("")(place)
        refused(lambda: waiter.wait(60))
        move_back("")(place)
        ledger.enqueue("after")
        assert waiter.wait(10)
    finally:
        waiter.close()


def test_a_worker_logs_a_missing_file_once_and_continues_when_it_is_back(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="holdfast")
    app = App(f"sqlite:///{place}")
    go = tmp_path / "go"

    @app.handler()
    def work() -> int:
        wait_until(go.exists)
        return 1

    def said(what: str) -> int:
        return sum(record.getMessage().startswith(what) for record in caplog.records)

    with app.worker(name="w", threads=2) as worker:
        worker.start()
        job = app.enqueue(work)
        became(app, job, "running")
        move_folder(place)
        go.touch()
        wait_until(lambda: said("claim: unavailable") and said("sweep: unavailable"))
        assert any("is no longer there" in str(getattr(record, "error", "")) for record in caplog.records)
        refused(lambda: app.enqueue(work))
        move_folder_back(place)
        wait_until(lambda: said("claim: works again") and said("sweep: works again"))
        assert ended(app, job).attempt == 1
        assert ended(app, app.enqueue(work)).attempt == 1
    assert said("claim: unavailable") == said("sweep: unavailable") == 1
    assert problems(app.ledger) == []
    app.close()


def test_no_data_is_lost_if_files_become_read_only(place: Path) -> None:
    """Open files stay open: a call is refused, or its acknowledged change is in the file."""
    url = f"sqlite:///{place}"
    # Root may write to any file, unless it drops that right.
    without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    with Program("sqlite_writer", url, prefix=without) as program, holdfast.open(url) as ledger:
        assert program.answer() == ["ready"]
        answered = set()

        def attempt_write() -> str:
            program.tell("enqueue")
            what, *facts = program.answer()
            assert what in ("enqueued", "unavailable")
            if what == "enqueued":
                answered.add(facts[0])
                program.tell(f"get {facts[0]}")
                assert program.answer()[0] in ("got", "unavailable")
            return str(what)

        attempt_write()
        for path, mode in (
            (place, 0o444),
            (beside(place, "-wal"), 0o444),
            (beside(place, "-lock"), 0o444),
            (place.parent, 0o555),
        ):
            before = path.stat().st_mode
            path.chmod(mode)
            for _ in range(3):
                attempt_write()
            path.chmod(before)
        assert attempt_write() == "enqueued"
        assert answered == {job.id for job in ledger.list()}
        assert count_jobs(ledger) == len(answered)
        assert problems(ledger) == []
