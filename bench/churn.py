"""`python -m bench.churn [--seconds N] [--rate N] [--store …]`: work and delete without a pause, and print sizes every minute.

Sizes follow the rate of jobs. On a machine with other load, `--rate` keeps that constant. Jobs are deleted when they are a minute
old. On PostgreSQL only autovacuum runs, with default settings. The program says how much larger the ledger was in the
last third of the time than in the third before.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import holdfast
from bench import cycles
from bench.__main__ import STORES, opened_hosts
from bench.places import Host
from bench.work import BATCH
from holdfast.services.pruner import PruneService

KEPT = timedelta(seconds=60)
SHOWN = 6
"""How many of the largest tables and indexes are printed."""


def churn(host: Host, seconds: float, every: float, rate: float = 0.0, keep: timedelta = KEPT) -> list[int]:
    """Work for this long, with this many jobs a second at most, and return the bytes of the ledger after each interval."""
    totals: list[int] = []
    with host.place() as place, holdfast.open(place.url) as ledger:
        prune = PruneService(ledger, "churn", jobs=keep, failed=keep, beats=keep, requests=keep)
        began = time.monotonic()
        prune_at, print_at, ended = began, began + every, 0
        while (now := time.monotonic()) < began + seconds:
            if rate and ended > (now - began) * rate:
                time.sleep(BATCH / rate)
            else:
                ended += cycles.work(ledger, BATCH)
            if now >= prune_at:
                prune.tick()
                prune_at = now + prune.every_s
            if now >= print_at:
                print_at += every
                sizes = place.object_sizes()
                totals.append(sum(sizes.values()))
                largest = sorted(sizes.items(), key=lambda item: -item[1])[:SHOWN]
                line = ", ".join(f"{name} {size / 2**20:.1f}" for name, size in largest)
                print(f"{host.name} {now - began:6.0f} s  {ended:10,} jobs  {totals[-1] / 2**20:8.1f} MiB  {line}", flush=True)
    return totals


def levelled(totals: Sequence[int]) -> float:
    """The largest size of the last third, over that of the third before."""
    third = len(totals) // 3
    return max(totals[-third:]) / max(totals[-2 * third : -third]) if third else 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.churn", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("--seconds", type=float, default=3_600.0, help="how long to work on each store")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines")
    parser.add_argument("--rate", type=float, default=0.0, help="jobs a second at most; without a limit by default")
    parser.add_argument("--store", choices=STORES, help="one store only")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, opened_hosts(Path(name), asked.store) as hosts:
        for host in hosts:
            totals = churn(host, asked.seconds, asked.every, asked.rate)
            print(f"{host.name}: the last third of the time over the third before: {levelled(totals):.2f}", flush=True)


if __name__ == "__main__":
    main()
