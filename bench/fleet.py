"""Worker processes of Holdfast's own, by the program that takes part among the peers."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from bench.drained import Drained
from bench.peers.process import MessageLog, Process
from bench.places import Place
from bench.rounds import Turn
from bench.work import batches

BOOT_SECONDS = 60.0
TELL_SECONDS = 60.0
IDLE_SECONDS = 1.0


class Fleet:
    """Processes at one ledger, which all end with the block."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home
        self._processes: dict[int, Process] = {}
        self.messages = MessageLog()

    def start(self, verb: str, config: str = "default") -> Process:
        program = [sys.executable, "-m", "bench.peers.programs.holdfast_worker", verb, self._url, config, "0"]
        process = Process(program, self._home, self.messages)
        self._processes[process.id] = process
        self.messages.wait("ready", BOOT_SECONDS)
        return process

    def kill(self, id_: int) -> None:
        self._processes[id_].kill()

    def close(self) -> None:
        for process in self._processes.values():
            process.__exit__(None, None, None)


@contextmanager
def fleet(url: str) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="holdfast-fleet-") as name:
        made = Fleet(url, Path(name))
        try:
            yield made
        finally:
            made.close()


def drain(place: Place, url: str, processes: int, jobs: int) -> Turn:
    """A drain by so many workers, from the moment they may begin until the last job is durably finished."""
    with fleet(url) as workers, holdfast.open(place.url) as ledger:
        ledger.pause("default")
        for size in batches(jobs):
            ledger.enqueue_many([{"kind": "noop"}] * size)
        started = [workers.start("work").id for _ in range(processes)]
        place.settle()
        drained, meter = Drained(place, ledger.position()), place.meter(started)
        began = time.perf_counter()
        ledger.unpause("default")
        seconds = drained.reached(jobs) - began
        return Turn(jobs / seconds, meter.spent(jobs))


def recovery(url: str, config: str) -> float:
    """Seconds from the SIGKILL of a worker in mid-job until another has begun it again."""
    with fleet(url) as workers:
        for _ in range(2):
            workers.start("work", config)
        sender = workers.start("send")
        time.sleep(IDLE_SECONDS)
        sender.tell("hold")
        holder = workers.messages.wait("began", TELL_SECONDS).speaker
        time.sleep(IDLE_SECONDS)
        killed_at = time.time()
        workers.kill(holder)
        again = workers.messages.wait("began", TELL_SECONDS, except_from=holder)
        workers.kill(again.speaker)  # its handler would not stop by itself
        return again.at - killed_at
