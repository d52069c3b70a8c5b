"""A fleet of real worker processes: four that hold long jobs, each on a queue of its own, and one that runs short jobs."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

import holdfast
from holdfast import HoldfastError, Job, Ledger, PolicyFields
from tests.blast.place import Place
from tests.blast.programs.jobs import SteppedClock
from tests.support import forked
from tests.support.histories import problems
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
WORKERS = ("w1", "w2", "w3", "w4")
JOBS_EACH = 5
SHORT = "short"
"""The worker that runs short jobs, and its queue."""
RATE = 40
"""Short jobs offered a second."""
UNSERVED = "unserved"
"""A queue that no worker of the fleet serves."""
ENDS_SECONDS = 60


class Offer:
    """Enqueue short jobs at a steady rate, in a thread with its own ledger. Late jobs are enqueued at once."""

    def __init__(self, ledger: Ledger, queue: str, rate: int) -> None:
        self.queue = queue
        self.rate = rate
        self.ids: list[int] = []
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"offer-{queue}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(0.1):
            late = int((time.monotonic() - begun) * self.rate) - len(self.ids)
            # Jobs that are refused while the server is away are enqueued again.
            with contextlib.suppress(HoldfastError):
                self.ids += [job.id for job in self._ledger.enqueue_many([{"kind": "quick", "queue": self.queue}] * late)]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(ENDS_SECONDS)
        assert not self._thread.is_alive(), f"an enqueue on {self.queue} does not come back"
        self._ledger.close()


class Fleet:
    """When the block begins, all workers hold their jobs and short jobs are enqueued. The end of the block ends every process."""

    def __init__(self, url: str, folder: Path, *, clock: Path | None = None, through: dict[str, str] | None = None) -> None:
        """`clock` is a file with the offset of the ledger's clock in seconds. `through` has urls for some workers."""
        self.url = url
        self.place = Place.of(url)
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._clock = clock
        self._through = through or {}
        self._go = folder / "go"
        self.ledger = self.open()
        self.offers: list[Offer] = []
        """The workers that get short jobs."""
        self.held: dict[int, str] = {}
        """The long jobs, and which worker holds each."""

    def open(self) -> Ledger:
        return holdfast.open(self.url, clock=None if self._clock is None else SteppedClock(str(self._clock)))

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run SQL directly on the database. `{s}` is the schema of the ledger."""
        with psycopg.connect(self.place.server, autocommit=True) as connection:
            return connection.execute(statement.replace("{s}", self.place.schema), params).fetchall()

    # Processes

    def start(self, name: str, queue: str | None = None) -> None:
        """Start a worker, by default for its own queue. It is ready to claim when this returns."""
        env = {**os.environ, "HOLDFAST_URL": self._through.get(name, self.url)}
        if self._clock is not None:
            env["BLAST_CLOCK"] = str(self._clock)
        with (self.folder / f"{name}.log").open("a") as said:
            process = forked.popen(
                [sys.executable, "-m", "tests.blast.programs.jobs", name, queue or name],
                cwd=ROOT,
                env=env,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
        self.processes[name] = process

    def started(self, *names: str) -> None:
        for name in names:
            stdout = self.processes[name].stdout
            assert stdout is not None
            assert stdout.readline() == "ready\n", self.said(name)

    def said(self, name: str) -> str:
        """The last lines of a worker's log."""
        return (self.folder / f"{name}.log").read_text()[-2_000:]

    def send(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def stop(self, name: str) -> int:
        """Stop a worker in order and return its exit code."""
        self.send(name, signal.SIGTERM)
        process = self.processes.pop(name)
        process.communicate(timeout=ENDS_SECONDS)
        return process.returncode

    # Jobs

    def hold(self, worker: str, count: int = 1, *, kind: str = "hold", go: Path | None = None) -> list[Job]:
        """New long jobs in a worker's queue."""
        args = {"go": str(go or self._go)}
        return self.ledger.enqueue_many([{"kind": kind, "args": args, "queue": worker}] * count)

    def became(self, job_id: int, *statuses: str, seconds: float = 30.0) -> Job:
        def look() -> Job | None:
            found = self.ledger.get(job_id)
            return found if found.status in statuses else None

        found = wait_until(look, seconds=seconds, what=f"job {job_id} {' or '.join(statuses)}; {self.describe(job_id)}")
        assert found is not None
        return found

    def orphan(self, lease_seconds: int = 2) -> int:
        """A job whose holder is gone: claimed by a client that never beats, on a queue that no worker serves."""
        policy: PolicyFields = {
            "heartbeat_interval": 1,
            "missed_beats_max": lease_seconds,
            "lease_ttl": lease_seconds,
            "backoff_base": 0,
        }
        job = self.ledger.enqueue("orphan", queue=UNSERVED, policy=policy)
        self.ledger.claim_job(job.id, "gone")
        return job.id

    def describe(self, job_id: int) -> str:
        """The history of a job without its beats, as text."""
        steps = [
            f"rev {event.rev} {event.type}{f' {event.reason}' if event.reason else ''} (attempt {event.attempt}, {event.actor},"
            f" {event.received_at:%H:%M:%S.%f})"
            for event in self.ledger.events(job_id)
            if event.type != "heartbeat"
        ]
        return f"job {job_id} of {self.held.get(job_id, 'no worker')}: {'; '.join(steps[-8:])}"

    def offer(self, queue: str, rate: int) -> Offer:
        """Start to enqueue short jobs."""
        self.offers.append(Offer(self.open(), queue, rate))
        return self.offers[-1]

    def end_offer(self, offer: Offer) -> None:
        offer.stop()
        self.offers.remove(offer)

    def done(self) -> dict[str, int]:
        """The number of succeeded jobs of each queue."""
        return {queue: counts.get("succeeded", 0) for queue, counts in self.ledger.counts().items()}

    def ready(self) -> None:
        """Wait until every long job is held and no short job is late. Faults begin from this state."""

        def is_ready() -> bool:
            held, done = {job.id for job in self.ledger.list(status=["claimed", "running"], limit=1_000)}, self.done()
            return held >= self.held.keys() and all(done.get(o.queue, 0) > len(o.ids) - o.rate for o in self.offers)

        wait_until(is_ready, seconds=60, what=f"the fleet at work: {self.ledger.counts()}")

    def __enter__(self) -> Self:
        try:
            for name in (*WORKERS, SHORT):
                self.start(name)
            for name in WORKERS:
                self.held |= {job.id: name for job in self.hold(name, JOBS_EACH)}
            self.started(*WORKERS, SHORT)
            self.offer(SHORT, RATE)
            self.ready()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kill()
        self.ledger.close()

    def finish(self) -> None:
        """Let every long job end, stop every worker, and check all histories."""
        for offer in list(self.offers):
            self.end_offer(offer)
        self._go.touch()
        for job_id in self.held:
            self.became(job_id, "succeeded", seconds=ENDS_SECONDS)
        codes = {name: self.stop(name) for name in list(self.processes)}
        assert set(codes.values()) <= {0}, codes
        assert problems(self.ledger) == []

    def _kill(self) -> None:
        for offer in self.offers:
            offer.stop()
        groups = [process.pid for process in self.processes.values()]
        for process in self.processes.values():
            process.kill()
            process.communicate(timeout=ENDS_SECONDS)
        self.processes.clear()
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, 0)
                raise AssertionError(f"a process of group {group} is left over")
