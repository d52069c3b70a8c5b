"""A process of `bench.versions`: for each line on its input, jobs for so many seconds. All versions can run it."""

import secrets
import sys
import time

import holdfast

BATCH = 500


def main(url: str, queue: str, size: str) -> None:
    work = one_by_one if size == "1" else in_batches
    with holdfast.open(url) as ledger:
        for line in sys.stdin:
            end, cpu, jobs = time.monotonic() + float(line), time.process_time(), 0
            while time.monotonic() < end:
                jobs += work(ledger, queue)
            print(jobs, time.process_time() - cpu, flush=True)


def one_by_one(ledger: holdfast.Ledger, queue: str) -> int:
    ledger.enqueue("k", {"n": 1}, queue=queue)
    [held] = ledger.claim(queue, queues=[queue], start=True, keep=False)
    assert held.fence is not None
    ledger.complete(held.fence, {"n": 2})
    return 1


def in_batches(ledger: holdfast.Ledger, queue: str) -> int:
    ledger.enqueue_many([{"kind": "k", "args": {"n": 1}, "queue": queue}] * BATCH)
    held = ledger.claim(queue, queues=[queue], limit=BATCH, start=True, keep=False)
    ledger.settle_many([(job.fence, {"n": 2}) for job in held if job.fence is not None], request_id=secrets.token_hex(8))
    return len(held)


if __name__ == "__main__":
    main(*sys.argv[1:])
