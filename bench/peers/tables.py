"""The tables of a run."""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from bench.cpu import Cpu
from bench.peers.figures import Taken, amount
from bench.rounds import cpus, rates

OURS = "holdfast"
LIKE: dict[str, str] = {"redis": "postgres"}
"""The storage of Holdfast that a contender is compared with, if the contender uses another one."""


def tables(taken: Sequence[Taken], recovery_seconds_max: float) -> str:
    shown = [_drains(taken), _latencies(taken)]
    if recovery_seconds_max:
        shown.append(_recoveries(taken, recovery_seconds_max))
    skipped = [f"  {one.title}: {figure}: {why}" for one in taken for figure, why in one.missing.items()]
    return "\n\n".join([*shown, *(["\n".join(["Left out", *skipped])] if skipped else [])])


def plain(one: Taken) -> dict[str, Any]:
    """The same for another program to read."""
    return {
        "name": one.peer.name,
        "storage": one.peer.storage,
        "config": one.peer.config,
        "drain": rates(one.drain),
        "drain_cpu_us": [cpu._asdict() for cpu in cpus(one.drain)],
        "latency_ms": one.latency_ms,
        "recovery_seconds": one.recovery_seconds,
        "recovery_tried": one.recovery_tried,
        "missing": one.missing,
    }


def _drains(taken: Sequence[Taken]) -> str:
    drained = sorted((one for one in taken if one.drain), key=lambda one: -median(rates(one.drain)))
    ours: dict[str, float] = {one.peer.storage: median(rates(one.drain)) for one in drained if one.peer.name == OURS}
    rows = [("", "storage", "config", "jobs/s", "µs of processor time a job", "of Holdfast", "rounds")]
    for one in drained:
        found = rates(one.drain)
        rate, base = median(found), ours.get(LIKE.get(one.peer.storage, one.peer.storage))
        ratio = "–" if base is None else f"{rate / base:.3f}"
        spread, cpu = f"{amount(min(found))}–{amount(max(found))}", str(Cpu.median(cpus(one.drain)))
        rows.append((one.peer.name, one.peer.storage, one.peer.config, amount(rate), cpu, ratio, spread))
    return _aligned("Drain: one worker process, handlers that do nothing, until the storage says that all is done", rows)


def _latencies(taken: Sequence[Taken]) -> str:
    rows = [("", "storage", "config", "p50 ms", "p99 ms")]
    for one in sorted((one for one in taken if len(one.latency_ms) > 1), key=lambda one: median(one.latency_ms)):
        high = quantiles(one.latency_ms, n=100, method="inclusive")[-1]
        rows.append((one.peer.name, one.peer.storage, one.peer.config, f"{median(one.latency_ms):,.1f}", f"{high:,.1f}"))
    return _aligned("Latency: from the enqueue of a lone job to its handler in an idle worker", rows)


def _recoveries(taken: Sequence[Taken], seconds_max: float) -> str:
    def seconds(one: Taken) -> str:
        return f"not within {seconds_max:,.0f}" if one.recovery_seconds is None else f"{one.recovery_seconds:,.1f}"

    tried = sorted((one for one in taken if one.recovery_tried), key=lambda one: one.recovery_seconds or float("inf"))
    rows = [("", "storage", "seconds"), *((one.peer.name, one.peer.storage, seconds(one)) for one in tried)]
    return _aligned("Recovery: from a worker's SIGKILL until another begins its job again, as they come", rows)


def _aligned(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join([title, *(f"  {line.rstrip()}" for line in lines)])
