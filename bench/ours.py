"""The same work through the ledger's verbs."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bench.work import KIND, RESULT, args, batches
from holdfast import Fence, HoldfastError, Ledger

WORKER = "bench"


def items(queue: str, count: int) -> list[list[dict[str, Any]]]:
    """What a caller would have at hand before it enqueues."""
    made, number = [], 0
    for size in batches(count):
        made.append([{"kind": KIND, "queue": queue, "args": args(i)} for i in range(number, number + size)])
        number += size
    return made


def enqueue(ledger: Ledger, prepared: Sequence[list[dict[str, Any]]]) -> None:
    for batch in prepared:
        ledger.enqueue_many(batch)


def enqueue_singly(ledger: Ledger, queue: str, count: int, threads: int) -> None:
    """One call a job, from this many threads at once."""

    def some(first: int) -> None:
        for number in range(first, count, threads):
            ledger.enqueue(KIND, args(number), queue=queue)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, range(threads)))


def claim(ledger: Ledger, queue: str, limit: int) -> list[Fence]:
    return [job.fence for job in ledger.claim(WORKER, [queue], limit=limit, start=True)]


def complete(ledger: Ledger, fences: Sequence[Fence]) -> int:
    answers = ledger.complete_many([(fence, RESULT) for fence in fences])
    return sum(not isinstance(answer, HoldfastError) for answer in answers)


def drain(ledger: Ledger, queue: str, count: int) -> int:
    """Claim with start, complete; a transaction each."""
    return sum(complete(ledger, claim(ledger, queue, size)) for size in batches(count))


def drain_in_two_lanes(ledger: Ledger, queue: str, count: int) -> int:
    """One thread claims while this one completes."""
    done = 0
    with ThreadPoolExecutor(1) as lane:
        ahead: Future[list[Fence]] | None = None
        for size in batches(count):
            held, ahead = ahead, lane.submit(claim, ledger, queue, size)
            done += complete(ledger, held.result()) if held else 0
        return done + (complete(ledger, ahead.result()) if ahead else 0)


def hold(ledger: Ledger, queue: str, count: int) -> list[Fence]:
    return [fence for size in batches(count) for fence in claim(ledger, queue, size)]


def beat(ledger: Ledger, fences: Sequence[Fence]) -> int:
    return sum(not isinstance(answer, HoldfastError) for answer in ledger.heartbeat_many(fences))
