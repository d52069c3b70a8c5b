"""A power cut: ext4 on a loop device is shut down without flushing its journal. Acknowledged commits are recovered."""

import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.integration.test_kill import check
from tests.support.histories import all_jobs, problems
from tests.support.processes import Program

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
NO_LOG_FLUSH = 2
MIB = 64


def run(*words: str) -> bool:
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Disk:
    """An ext4 file system that can lose its power.

    If mounting is not allowed, it is a folder, and its processes are killed instead.
    """

    def __init__(self, folder: Path) -> None:
        self._image = folder / "image"
        self.place = folder / "disk"
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(MIB << 20)
        self._is_real = run("mkfs.ext4", "-q", str(self._image)) and self._mounted()

    def _mounted(self) -> bool:
        return run("mount", "-o", "loop", str(self._image), str(self.place))

    def cycle(self) -> None:
        """Unmount and mount again: the file system is recovered from its journal."""
        self.close()
        assert not self._is_real or self._mounted()

    def cut(self) -> None:
        """Cut the power. Data that was not synced is lost, and every later write fails."""
        if not self._is_real:
            return
        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def close(self) -> None:
        assert not self._is_real or run("umount", str(self.place))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.close()


def cut_once(disk: Disk, url: str, life: int, lines: int) -> list[list[Any]]:
    """The acknowledged calls of a process whose power is cut in the middle of its next call."""
    with Program("batches", url, life) as program:
        assert program.answer() == ["ready"]
        said = [program.answer() for _ in range(lines)]
        disk.cut()
        # The sync that is under way when ext4 is shut down may wrongly report success. A real power cut ends its process.
        said += [json.loads(line) for line in program.kill()][:-1]
    disk.cycle()
    return said


def cut_often(disk: Disk, *, lives: int, lines: int) -> None:
    url, chance = f"sqlite:///{disk.place}/holdfast.db", random.Random(lives)
    with holdfast.open(url):
        pass
    said = [cut_once(disk, url, life, chance.randrange(1, lines)) for life in range(lives)]
    assert all(said)
    with holdfast.open(url) as ledger:
        check(ledger, said)


def test_acknowledged_commits_survive_a_power_cut(disk: Disk) -> None:
    cut_often(disk, lives=3, lines=20)


@pytest.mark.torture
def test_acknowledged_commits_survive_many_power_cuts(disk: Disk) -> None:
    cut_often(disk, lives=30, lines=60)


def test_acknowledged_commits_of_many_processes_survive_a_power_cut(disk: Disk) -> None:
    """Every acknowledged write is recovered, also if another process wrote last."""
    url = f"sqlite:///{disk.place}/holdfast.db"
    programs = [Program("sqlite_writer", url) for _ in range(4)]
    try:
        answered: list[set[int]] = [set() for _ in programs]
        under_way = threading.Barrier(len(programs) + 1)

        def drive(program: Program, found: set[int]) -> None:
            assert program.answer() == ["ready"]
            while True:
                try:
                    program.tell("enqueue")
                    what, *facts = program.answer()
                except (AssertionError, OSError):
                    return
                if what != "enqueued":
                    return
                found.add(facts[0])
                if len(found) == 20:
                    under_way.wait(60)

        threads = [threading.Thread(target=drive, args=pair, daemon=True) for pair in zip(programs, answered, strict=True)]
        for thread in threads:
            thread.start()
        under_way.wait(60)
        # Only calls that were acknowledged before the cut count: see `cut_once`.
        answered = [set(found) for found in answered]
        disk.cut()
    finally:
        for program in programs:
            os.kill(program.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        for program in programs:
            with program:
                program.kill()
    disk.cycle()
    with holdfast.open(url) as ledger:
        there = {job.id for job in all_jobs(ledger)}
        assert set().union(*answered) <= there
        # At most one call of each process was running.
        assert len(there) <= sum(map(len, answered)) + len(programs)
        assert problems(ledger) == []
