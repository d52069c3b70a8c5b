"""What the figures were taken on."""

import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from bench.places import Host

SYNCS = 200
BLOCK = bytes(4_096)


def fdatasync_us(home: Path) -> float:
    """What it takes to make one appended block durable, where the ledgers lie: the median of many."""
    path, taken = home / "fdatasync", []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(handle, BLOCK)
            os.fdatasync(handle)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
    return statistics.median(taken) * 1_000_000


def facts(home: Path, hosts: Sequence[Host]) -> dict[str, str]:
    return {
        "CPUs": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.2f}",
        "Python": platform.python_version(),
        **{host.name: host.versions for host in hosts},
        "fdatasync": f"{fdatasync_us(home):,.0f} µs",
    }
