"""Cycles of work for measurements of growth: fill a ledger, drain it, and delete what is finished."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from bench.ours import WORKER
from bench.work import BATCH, KIND, RESULT, args
from holdfast import Fence, HoldfastError, Ledger

QUEUE = "cycle"
RARE = 5
"""How many jobs of a batch have each of the rare verbs."""


def cycle(ledger: Ledger, jobs: int, vacuum: Callable[[], None]) -> int:
    """Work through this many jobs, then delete them, but for the last batch. Return how many have ended.

    `vacuum` is called after the work and after the deletion.
    """
    ended, kept_from = 0, ledger.now()
    for size in [BATCH] * (jobs // BATCH):
        kept_from = ledger.now()
        ended += work(ledger, size)
    vacuum()
    prune(ledger, kept_from)
    vacuum()
    return ended


def work(ledger: Ledger, size: int) -> int:
    """Work through one batch. Some jobs wait for others, have a key, beat with fields, are released, fail or are cancelled.

    Return how many have ended.
    """
    items: list[dict[str, Any]] = [{"kind": KIND, "queue": QUEUE, "args": args(number)} for number in range(size)]
    for number in range(RARE):
        items[number] |= {"ref": f"first {number}"}
        items[RARE + number] |= {"depends_on": [f"first {number}"]}
    made = ledger.enqueue_many(items, request_id=f"fill {ledger.position()}")
    for number in range(RARE):
        ledger.enqueue(KIND, args(number), queue=QUEUE, dedupe_key=f"key {number}")
    for job in made[-RARE:]:
        ledger.cancel(job.id)
    ended, is_first = RARE, True
    while held := [job.fence for job in ledger.claim(WORKER, [QUEUE], limit=BATCH, start=True)]:
        ledger.heartbeat_many(held)
        if is_first:
            held, is_first = _trouble(ledger, held), False
            ended += RARE
        answers = ledger.complete_many([(fence, RESULT) for fence in held])
        ended += sum(not isinstance(answer, HoldfastError) for answer in answers)
    ledger.sweep()
    return ended


def _trouble(ledger: Ledger, held: list[Fence]) -> list[Fence]:
    """Release some jobs and let some fail. Return those that are still held."""
    for number, fence in enumerate(held[-3 * RARE :]):
        ledger.heartbeat(fence, stage="half", progress=number)
    for fence in held[-2 * RARE : -RARE]:
        ledger.release(fence)
    for fence in held[-RARE:]:
        ledger.fail(fence, "no", retryable=False)
        ledger.discard(fence.job_id)
    return held[: -2 * RARE]


def prune(ledger: Ledger, before: datetime) -> None:
    """Delete what is older than this, step by step."""
    while any(ledger.prune(jobs_before=before, failed_before=before, beats_before=before, requests_before=before).values()):
        pass
