"""The disk of the server is full for longer than a lease, and then has room again."""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Unavailable
from tests.blast.fleet import Fleet
from tests.blast.watch import Watch
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

FULL_SECONDS = 12


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk. This needs the right to mount. It is not below pytest's folder: the server may run as another user."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
    place.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", "size=320m,mode=755", "tmpfs", str(place)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    assert mounted.returncode == 0, f"this test has to mount a disk: {mounted.stderr}"
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S607
    place.rmdir()


@pytest.fixture
def server(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    with PostgresServer.create() as server:
        monkeypatch.undo()
        yield server


@pytest.fixture
def fleet(server: PostgresServer, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(server.url, tmp_path) as fleet:
        yield fleet


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65_536)
        except OSError:
            pass
    return ballast


@pytest.mark.torture
@pytest.mark.parametrize("what", ["tables", "log"])
def test_a_full_disk_takes_no_job_from_its_holder(fleet: Fleet, server: PostgresServer, disk: Path, what: str) -> None:
    """Without space for its log, the server stops by itself and cannot start until there is space again."""
    with Watch(fleet, late=True):
        ballast = fill(disk)
        wait_until(lambda: _is_full(fleet), what="the server has no room")
        if what == "log":
            _fill_log(server)
        else:
            # Reads continue.
            assert {fleet.ledger.get(job_id).attempt for job_id in fleet.held} == {1}
        threading.Event().wait(FULL_SECONDS)
        ballast.unlink()
        _surely_start(server)
    assert {fleet.ledger.get(job_id).attempt for job_id in fleet.held} == {1}
    fleet.ready()
    fleet.finish()


def _is_full(fleet: Fleet) -> bool:
    try:
        fleet.ledger.enqueue_many([{"kind": "quick", "queue": "short", "args": {}}] * 100)
    except Unavailable as error:
        return "No space left" in error.message or "cannot reach" in error.message
    return False


def _fill_log(server: PostgresServer) -> None:
    """Fill the disk until the server cannot extend its log and stops."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(server.url, autocommit=True) as connection:
        while True:
            connection.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 100000)), pg_switch_wal()")


def _surely_start(server: PostgresServer) -> None:
    """Start the server, unless it has recovered by itself."""
    try:
        psycopg.connect(server.url).close()
    except psycopg.Error:
        server.start()
