"""The app whose jobs `bench.places` fills in: a real worker for figures that need one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.drained import Drained
from bench.places import Place
from bench.rounds import Turn
from bench.work import KIND, RESULT
from holdfast import App, Ledger

QUEUE = "all"
BOOT_SECONDS = 60.0
QUIET = ("--log-level", "warning")
"""By default each start and each success has a log line, which costs more than the rest of a job that does nothing."""
app = App()


@app.handler(KIND, queue=QUEUE)
def report(customer: int, path: str) -> dict[str, int]:
    return RESULT


@contextmanager
def worker(url: str, ledger: Ledger) -> Iterator[int]:
    """Run `holdfast worker run` in another process, and yield its id. Its queue is paused."""
    ledger.pause(QUEUE)
    command = [sys.executable, "-m", "holdfast", "worker", "run", "bench.reports:app", "--db", url, *QUIET]
    process = subprocess.Popen(command, env={**os.environ, "HOLDFAST_URL": url}, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        while not ledger.workers():
            assert process.poll() is None, "the worker has ended"
            assert time.monotonic() < deadline, "the worker does not start"
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def drain(place: Place, ledger: Ledger, jobs: int) -> Turn:
    """A drain of new jobs by a new worker process, from the moment it may begin until the last job is durably finished."""
    place.fill(QUEUE, jobs)
    place.settle()
    with worker(place.url, ledger) as process:
        drained, meter = Drained(place, ledger.position()), place.meter([process])
        began = time.perf_counter()
        ledger.unpause(QUEUE)
        seconds = drained.reached(jobs) - began
        return Turn(jobs / seconds, meter.spent(jobs))
