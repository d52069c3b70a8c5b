"""A process that does one thing and reports its peak memory: `python -m bench.child drain|follow URL QUEUE COUNT`."""

import json
import sys
from itertools import islice
from pathlib import Path

import holdfast
from bench import ours
from holdfast import Ledger


def peak_kib() -> int:
    """VmHWM, not ru_maxrss, which starts with the parent's value."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def follow(ledger: Ledger, count: int) -> int:
    return sum(1 for _ in islice(ledger.follow(timeout=30), count))


def main(what: str, url: str, queue: str, count: int) -> None:
    with holdfast.open(url) as ledger:
        done = ours.drain(ledger, queue, count) if what == "drain" else follow(ledger, count)
        print(json.dumps({"done": done, "peak_kib": peak_kib()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
