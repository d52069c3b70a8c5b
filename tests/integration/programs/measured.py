"""Follow or drain a whole ledger and print by how many KiB the process grew."""

import json
import sys

import holdfast


def resident() -> int:
    with open("/proc/self/status") as status:  # noqa: PTH123 - not a file of ours
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def follow(ledger: holdfast.Ledger, count: int) -> int:
    before = 0
    for seen, event in enumerate(ledger.follow(), 1):
        if seen == count // 10:
            before = resident()
        if seen == count:
            assert event.pos > 0
            break
    return before


def drain(ledger: holdfast.Ledger, count: int) -> int:
    done = 0
    before = 0
    while jobs := ledger.claim("worker", limit=500, start=True):
        ledger.complete_many([(job.fence, {"n": 1}) for job in jobs])
        done += len(jobs)
        if not before and done >= count // 10:
            before = resident()
    assert done == count
    return before


if __name__ == "__main__":
    mode, url, number = sys.argv[1:]
    with holdfast.open(url) as opened:
        start = follow(opened, int(number)) if mode == "follow" else drain(opened, int(number))
        sys.stdout.write(json.dumps([start, resident()]) + "\n")
