"""The disk of a SQLite ledger is full while workers run, and then has space again: they continue and lose no job."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger, PolicyFields, Unavailable
from tests.support.histories import all_events, problems
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

WORKERS = 3
STEADY: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 8, "lease_ttl": 8}


class Disk:
    """A tmpfs that can be filled. If mounting is not allowed, a limit prevents the workers from writing to any file."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"
        words = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
        self.is_real = subprocess.run(words, check=False, capture_output=True).returncode == 0

    def fill(self, pids: list[int]) -> None:
        if not self.is_real:
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 4_096)
            except OSError:
                pass

    def free(self, pids: list[int]) -> None:
        if not self.is_real:
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return
        self._ballast.unlink()

    def close(self) -> None:
        if self.is_real:
            subprocess.run(["umount", "-l", str(self.place)], check=True)  # noqa: S607


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    disk = Disk(place)
    yield disk
    disk.close()


def beaten(ledger: Ledger, after: int) -> set[int]:
    return {event.job_id for event in ledger.events(after=after, limit=1_000) if event.type == "heartbeat"}


def full_until_refused(ledger: Ledger, disk: Disk, pids: list[int]) -> list[int]:
    """Enqueue until the disk is full, and return the acknowledged jobs."""
    made = []
    disk.fill(pids)
    if disk.is_real:
        error = None
        while error is None:
            try:
                made.append(ledger.enqueue("count", {"log": os.devnull, "n": 0, "pad": "x" * 500}, queue="held").id)
            except Unavailable as refusal:
                error = refusal
        assert "full" in error.message
    return made


def test_a_full_disk_costs_no_worker_a_job(disk: Disk, tmp_path: Path) -> None:
    url, go = f"sqlite:///{disk.place}/holdfast.db", tmp_path / "go"
    with holdfast.open(url) as ledger, Fleet(url) as fleet:
        steady = {ledger.enqueue("let_go", {"go": str(go)}, policy=STEADY).id for _ in range(WORKERS * 2)}
        pids = [fleet.start(f"w{number}", threads=4) for number in range(WORKERS)]
        wait_until(lambda: beaten(ledger, 0) == steady)
        quick = [ledger.enqueue("count", {"log": str(tmp_path / "log"), "n": n}).id for n in range(200)]
        quick += full_until_refused(ledger, disk, pids)
        # Reads continue. Wait until every worker has been refused a beat.
        fullest = ledger.position()
        wait_until(lambda: all(missed(ledger, id_) for id_ in steady), what="beats that found no room")
        disk.free(pids)
        wait_until(lambda: beaten(ledger, fullest) == steady, what="beats again")
        go.touch()
        done = {"default": steady | set(quick[:200])}
        wait_until(lambda: ledger.counts()["default"].get("succeeded") == len(done["default"]))
        assert {job.id for job in ledger.list(queue="held", limit=1_000)} == set(quick[200:])
        for id_ in steady:
            assert ledger.get(id_).attempt == 1
        kinds = {event.type for event in all_events(ledger) if event.job_id in steady}
        assert kinds == {"enqueued", "claimed", "started", "heartbeat", "succeeded"}
        assert problems(ledger) == []


def missed(ledger: Ledger, job_id: int) -> bool:
    """Whether a beat is overdue by the ledger's own clock."""
    found = ledger.explain(job_id)
    assert found.last_proof_of_life is not None
    return found.last_proof_of_life.age_ms > 1_800
