"""A process of `bench.versions`. It uses only what all versions of Holdfast have.

Its arguments are the ledger's URL, a queue of its own and the kind of work. If the URL is that of a server, HOLDFAST_TOKEN has a
token of a worker with the queue's name. On `prepare SECONDS` from its input it gets ready for a turn, on `run SECONDS` it works
for about so long. The answer to the second is how much was done, in how many seconds, and in how many seconds of processor time.
"""

import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from typing import Any

import holdfast

BATCH = 500
LEASES = 10_000
BEATS_AT_ONCE = 1_000
THREADS = 64
FOLLOWED_JOBS, EVENTS_OF_A_JOB = 2_500, 4
DRAINED_PER_SECOND = 60_000
"""The jobs of a worker's turn, for each second that the turn should take."""
CALLS_PER_SECOND = 6_000
"""The jobs of a turn of one verb, for each second that the turn should take."""
READ_JOBS, PAGE = 1_000, 50
ROOM: dict[str, Any] = {"lease_ttl": "1h", "heartbeat_interval": "1h"}


class Work(ABC):
    """One kind of work. Subclasses have a step, which is repeated until the turn is over or nothing is left to do."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        self.ledger = ledger
        self.url = url
        self.queue = queue

    def prepare(self, seconds: float) -> None:  # noqa: B027 - most kinds of work need no preparation
        """Get ready for a turn. This is not measured."""

    def run(self, seconds: float) -> int:
        end, done = time.monotonic() + seconds, 0
        while time.monotonic() < end and (step := self.step()):
            done += step
        return done

    @abstractmethod
    def step(self) -> int:
        """Do some jobs, and return how many."""

    def enqueue(self, number: int = BATCH, **fields: Any) -> None:
        self.ledger.enqueue_many([{"kind": "k", "args": {"n": 1}, "queue": self.queue, **fields}] * number)

    def claim(self, limit: int = BATCH) -> list[holdfast.Fence]:
        held = self.ledger.claim(self.queue, queues=[self.queue], limit=limit, start=True, keep=False)
        return [job.fence for job in held]

    def settle(self, held: list[holdfast.Fence]) -> None:
        for start in range(0, len(held), BATCH):
            self.ledger.settle_many([(fence, {"n": 2}) for fence in held[start : start + BATCH]], request_id=secrets.token_hex(8))


class Lone(Work):
    """A job is enqueued, claimed and completed, and then the next."""

    def step(self) -> int:
        self.ledger.enqueue("k", {"n": 1}, queue=self.queue)
        [fence] = self.claim(1)
        self.ledger.complete(fence, {"n": 2})
        return 1


class Batches(Work):
    """The same in batches."""

    def step(self) -> int:
        self.enqueue()
        held = self.claim()
        self.settle(held)
        return len(held)


class Bulk(Work):
    """Jobs are enqueued in batches."""

    def step(self) -> int:
        self.enqueue()
        return BATCH


class Threads(Work):
    """Jobs are enqueued one by one, by many threads."""

    def run(self, seconds: float) -> int:
        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(super().run, [seconds] * THREADS))

    def step(self) -> int:
        self.ledger.enqueue("k", {"n": 1}, queue=self.queue)
        return 1


class Beats(Work):
    """Leases are renewed, a thousand at once."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        for _ in range(0, LEASES, BATCH):
            self.enqueue(policy=ROOM)
        held = [fence for _ in range(0, LEASES, BATCH) for fence in self.claim()]
        self._chunks = cycle([held[start : start + BEATS_AT_ONCE] for start in range(0, LEASES, BEATS_AT_ONCE)])

    def step(self) -> int:
        answers = self.ledger.heartbeat_many(next(self._chunks))
        return sum(not isinstance(answer, holdfast.HoldfastError) for answer in answers)


class Follow(Work):
    """The first events of the ledger are followed, over and over."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        batches = Batches(ledger, url, queue)
        for _ in range(0, FOLLOWED_JOBS, BATCH):
            batches.step()

    def step(self) -> int:
        return sum(1 for _ in islice(self.ledger.follow(), FOLLOWED_JOBS * EVENTS_OF_A_JOB))


class Worker(Work):
    """Jobs that do nothing are run by a worker, from its start until it has stopped. Every outcome is recorded by then."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        self._jobs, self._numbers = 0, count(1)
        self._app = holdfast.App(url)

        @self._app.handler("k", queue=queue)
        def ran(n: int) -> None:
            if next(self._numbers) == self._jobs:
                self._worker.stop()

    def prepare(self, seconds: float) -> None:
        batches = max(1, round(seconds * DRAINED_PER_SECOND / BATCH))
        for _ in range(batches):
            self.enqueue()
        self._jobs, self._numbers = batches * BATCH, count(1)
        self._worker = self._app.worker()

    def run(self, seconds: float) -> int:
        return self.step()

    def step(self) -> int:
        self._worker.run()
        self._worker.close()
        return self._jobs


def _calls(seconds: float) -> int:
    """How many calls of a verb a turn may make, in whole batches."""
    return max(1, round(seconds * CALLS_PER_SECOND / BATCH)) * BATCH


class Enqueue(Work):
    """`enqueue` alone, a job a call."""

    def step(self) -> int:
        self.ledger.enqueue("k", {"n": 1}, queue=self.queue)
        return 1


class Claim(Work):
    """`claim` alone, a job a call. The jobs are enqueued before the turn, and those of the turn before are completed."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        self._held: list[holdfast.Fence] = []
        self._ready = 0

    def prepare(self, seconds: float) -> None:
        self.settle(self._held)
        self._held = []
        while self._ready < _calls(seconds):
            self.enqueue(policy=ROOM)
            self._ready += BATCH

    def step(self) -> int:
        found = self.claim(1)
        self._held += found
        self._ready -= len(found)
        return len(found)


class Complete(Work):
    """`complete` alone, a job a call. The jobs are enqueued, claimed and started before the turn."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        self._held: list[holdfast.Fence] = []

    def prepare(self, seconds: float) -> None:
        while len(self._held) < _calls(seconds):
            self.enqueue(policy=ROOM)
            self._held += self.claim()

    def step(self) -> int:
        if not self._held:
            return 0
        self.ledger.complete(self._held.pop(), {"n": 2})
        return 1


class Heartbeat(Work):
    """`heartbeat` alone, a lease a call."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        self.enqueue(policy=ROOM)
        self._held = cycle(self.claim())

    def step(self) -> int:
        self.ledger.heartbeat(next(self._held))
        return 1


class Reading(Work):
    """A verb that reads, in a queue of a thousand jobs."""

    def __init__(self, ledger: holdfast.Ledger, url: str, queue: str) -> None:
        super().__init__(ledger, url, queue)
        for _ in range(0, READ_JOBS, BATCH):
            self.enqueue()
        self.jobs = cycle([job.id for job in ledger.list(queue=queue, limit=BATCH)])


class Get(Reading):
    """`get` alone."""

    def step(self) -> int:
        self.ledger.get(next(self.jobs))
        return 1


class List(Reading):
    """`list` alone, a page of 50 jobs a call."""

    def step(self) -> int:
        self.ledger.list(queue=self.queue, limit=PAGE)
        return 1


VERBS: dict[str, Callable[[holdfast.Ledger, str, str], Work]] = {
    "enqueue": Enqueue,
    "claim": Claim,
    "complete": Complete,
    "heartbeat": Heartbeat,
    "get": Get,
    "list": List,
}
REMOTE = "remote-"
"""What the name of a verb's work begins with if the ledger is used through a server."""
WORKS: dict[str, Callable[[holdfast.Ledger, str, str], Work]] = {
    "lone": Lone,
    "batches": Batches,
    "beats": Beats,
    "bulk": Bulk,
    "threads": Threads,
    "worker": Worker,
    "follow": Follow,
    **VERBS,
    **{f"{REMOTE}{name}": work for name, work in VERBS.items()},
}


def main(url: str, queue: str, kind: str) -> None:
    with holdfast.open(url) as ledger:
        work = WORKS[kind](ledger, url, queue)
        for verb, seconds in _orders():
            if verb == "prepare":
                work.prepare(seconds)
                print("ready", flush=True)
                continue
            began, cpu = time.monotonic(), time.process_time()
            done = work.run(seconds)
            print(done, time.monotonic() - began, time.process_time() - cpu, flush=True)


def _orders() -> Iterator[tuple[str, float]]:
    for line in sys.stdin:
        verb, seconds = line.split()
        yield verb, float(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
