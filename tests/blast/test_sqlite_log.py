"""SQLite's write-ahead log: no read of ours keeps it from starting again, and it gets small after a read of another program."""

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Ledger
from holdfast.core.doctor import checks
from holdfast.store.sqlite import copies, store
from tests.support.processes import Program

ROOM = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A ledger whose log is large from a megabyte on, and whose writers look at it after each commit."""
    monkeypatch.setattr(store, "LOG_BYTES_MAX", ROOM)
    monkeypatch.setattr(store, "CHECKPOINT_SECONDS", 0.0)
    with holdfast.open(f"sqlite:///{path}") as ledger:
        yield ledger


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def fill(ledger: Ledger) -> None:
    """Write more than the log may have."""
    for number in range(4):
        ledger.enqueue_many([{"kind": "k", "args": {"text": f"{number}" * 10_000}} for _ in range(50)])


def can_start_again(path: Path) -> bool:
    """Return whether no read transaction keeps the log from being emptied."""
    connection = apsw.Connection(str(path))
    try:
        [(is_busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not is_busy and log_bytes(path) == 0
    finally:
        connection.close()


def test_the_log_gets_small_when_another_program_has_ended_its_read(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOG_BYTES_MAX", ROOM)
    ledger.enqueue("k")
    with Program("sqlite_reader", path) as reader:
        assert reader.answer() == "reads"
        fill(ledger)
        assert log_bytes(path) > 2 * ROOM
        [finding] = [found for found in ledger.diagnose().findings if found.code == "wal"]
        assert finding.severity == "warning"
        assert f"process {reader.pid} has a read transaction open" in finding.words
        reader.tell()
        assert reader.answer() == "ended"
        [finding] = [found for found in ledger.diagnose().findings if found.code == "wal"]
        assert finding.severity == "note"
        for _ in range(2):
            ledger.enqueue("k")
        assert log_bytes(path) <= ROOM
    assert not [found for found in ledger.diagnose().findings if found.code == "wal"]


def follow(ledger: Ledger) -> Callable[[], object]:
    events = ledger.follow()
    next(events)
    return events.close


READS: dict[str, Callable[[Ledger], object]] = {
    "follow": follow,
    "events": lambda ledger: ledger.events(),
    "list": lambda ledger: ledger.list(),
    "counts": lambda ledger: ledger.counts(),
    "queues": lambda ledger: ledger.queues(),
    "explain": lambda ledger: ledger.explain(1),
    "check": lambda ledger: ledger.check(1),
    "diagnose": lambda ledger: ledger.diagnose(),
    "until_ready": lambda ledger: ledger.until_ready(["default"]),
}


@pytest.mark.parametrize("read", READS)
def test_no_read_leaves_a_transaction_open(ledger: Ledger, path: Path, read: str) -> None:
    fill(ledger)
    left = READS[read](ledger)
    fill(ledger)
    assert can_start_again(path)
    if callable(left):
        left()


def test_an_export_does_not_hold_the_log(ledger: Ledger, path: Path) -> None:
    ledger.enqueue_many([{"kind": "k"}] * 3)
    lines: list[bytes] = []

    def write(line: bytes) -> None:
        if not lines:
            fill(ledger)
            assert can_start_again(path)
        lines.append(line)

    made = ledger.export(write)
    assert made.events == 3, "later events are not exported"
    assert not list(path.parent.glob("*copy*"))


def test_without_room_for_a_copy_the_file_itself_is_exported(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.enqueue("k")
    copied: list[bytes] = []
    ledger.export(copied.append)
    monkeypatch.setattr(copies, "ROOM_BYTES", 1 << 62)
    exported: list[bytes] = []

    def write(line: bytes) -> None:
        if not exported:
            ledger.enqueue("later")
            assert not can_start_again(path)
        exported.append(line)

    ledger.export(write)
    assert exported[1:] == copied[1:]
