"""A process of `bench.versions`: for each line on its input, lone jobs for so many seconds. All versions can run it."""

import sys
import time

import holdfast


def main(url: str, queue: str) -> None:
    with holdfast.open(url) as ledger:
        for line in sys.stdin:
            end, cpu, jobs = time.monotonic() + float(line), time.process_time(), 0
            while time.monotonic() < end:
                ledger.enqueue("k", {"n": 1}, queue=queue)
                [held] = ledger.claim(queue, queues=[queue], start=True, keep=False)
                assert held.fence is not None
                ledger.complete(held.fence, {"n": 2})
                jobs += 1
            print(jobs, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
