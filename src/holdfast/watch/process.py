"""Counters and histograms of one process, under one lock."""

import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import ValidationError
from holdfast.watch.families import COMPLETED, COUNTERS, HISTOGRAMS, RUN, WAIT, Family
from holdfast.watch.tally import P50, P95, SECOND_US, Histogram, merged

NAMES_MAX = 200
"""The most distinct kinds, and the most distinct queues. Later ones are counted together as `other`."""
OUTCOMES_MAX = 20
OTHER = "other"
SUCCEEDED = "succeeded"

Labels = tuple[str, ...]
Counts = Mapping[tuple[str, Labels], int]
"""Increments by the counter's name and its labels."""


class Quantiles(NamedTuple):
    """Seconds for one kind of job. None: nothing was measured."""

    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None


class Readings(NamedTuple):
    """All counters and timings at one moment."""

    counters: dict[str, dict[Labels, int]]
    timings: dict[str, dict[Labels, Histogram]]
    recent: dict[str, dict[Labels, Histogram]]
    """The timings that quantiles are about: those since the start of the process, or those of the last hour of the ledger."""


class _BoundedNames:
    """Keeps the first `size_max` names and replaces later ones by `other`, so that endless new names do not fill the memory."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._size_max:
            return OTHER
        self._known.add(name)
        return name


class Metrics:
    """Counters and timings that ledgers and workers of this process add to. Safe to use from many threads.

    `holdfast.open` creates one for each ledger. Pass one to several ledgers with `metrics=` to count them together.
    """

    def __init__(self, counters: Sequence[Family] = COUNTERS, histograms: Sequence[Family] = HISTOGRAMS) -> None:
        self._lock = threading.RLock()
        self._names = {
            "kind": _BoundedNames(NAMES_MAX),
            "queue": _BoundedNames(NAMES_MAX),
            "outcome": _BoundedNames(OUTCOMES_MAX),
        }
        self._labels = {family.name: family.labels for family in (*counters, *histograms)}
        self._counters: dict[str, dict[Labels, int]] = {family.name: {} if family.labels else {(): 0} for family in counters}
        self._timings: dict[str, dict[Labels, Histogram]] = {family.name: {} for family in histograms}
        _instances.add(self)

    def ran(self, kind: str, outcome: str, seconds: float) -> None:
        """Record one run of a job. `outcome` is one of a few words; "succeeded" counts as completed."""
        self.ran_many(kind, outcome, [seconds])

    def ran_many(self, kind: str, outcome: str, seconds: Sequence[float]) -> None:
        """Record many runs of one kind with the same outcome."""
        if not math.isfinite(sum(seconds)):
            raise ValidationError("seconds must be a finite number", field="seconds")
        durations = [round(time * SECOND_US) if time > 0 else 0 for time in seconds]
        with self._lock:
            if outcome == SUCCEEDED:
                self._add_counts({(COMPLETED, (kind,)): len(durations)})
            self._add_timings(RUN, {(kind, outcome): durations})

    def record(self, counts: Counts, waits_us: Mapping[str, list[int]]) -> None:
        """Record one call of the ledger: counters, and waits by kind. The lists are sorted in place."""
        self.add(counts, {WAIT: {(kind,): waits for kind, waits in waits_us.items()}})

    def add(self, counts: Counts, timings_us: Mapping[str, Mapping[Labels, list[int]]]) -> None:
        """Add to counters, and add durations by the histogram's name and its labels."""
        with self._lock:
            self._add_counts(counts)
            for name, durations_us in timings_us.items():
                self._add_timings(name, durations_us)

    def _add_counts(self, counts: Counts) -> None:
        for (name, labels), count in counts.items():
            series, key = self._counters[name], self._bounded(name, labels)
            series[key] = series.get(key, 0) + count

    def _add_timings(self, name: str, durations_us: Mapping[Labels, list[int]]) -> None:
        series = self._timings[name]
        for labels, durations in durations_us.items():
            key = self._bounded(name, labels)
            if key not in series:
                series[key] = Histogram()
            series[key].add(durations)

    def _bounded(self, name: str, labels: Labels) -> Labels:
        """Limit the number of names. Reasons and codes are enumerated already."""
        return tuple(
            self._names[label].bounded(value) if label in self._names else value
            for label, value in zip(self._labels[name], labels, strict=True)
        )

    def queue_label(self, queue: str) -> str:
        """Return the queue, or "other" if there are too many queues already."""
        with self._lock:
            return self._names["queue"].bounded(queue)

    def value(self, name: str, **labels: str) -> int:
        """Return the value of a counter, 0 if nothing was counted."""
        if name not in self._counters or labels.keys() != set(self._labels[name]):
            raise ValidationError(f"there is no counter {name} with these labels", field="name")
        with self._lock:
            return self._counters[name].get(tuple(labels[label] for label in self._labels[name]), 0)

    def quantiles(self, kind: str) -> Quantiles:
        """Return the median and the 95th percentile of a kind's waits and runs since the process started, within 5 %."""
        return quantiles(self.read(), kind)

    def read(self) -> Readings:
        with self._lock:
            timings = {
                name: {labels: timing.copy() for labels, timing in series.items()} for name, series in self._timings.items()
            }
            return Readings({name: dict(series) for name, series in self._counters.items()}, timings, timings)

    def _forked(self) -> None:
        self._lock = threading.RLock()


def quantiles(readings: Readings, kind: str, names: tuple[str, str] = (WAIT, RUN)) -> Quantiles:
    found = []
    for name in names:
        total = merged(timing for labels, timing in readings.recent[name].items() if labels[0] == kind)
        found += [total.quantile(P50), total.quantile(P95)]
    return Quantiles(*found)


_instances: "weakref.WeakSet[Metrics]" = weakref.WeakSet()


def _after_fork() -> None:
    """Replace the locks: the thread that held one at the fork does not exist in the child."""
    for metrics in list(_instances):
        metrics._forked()  # noqa: SLF001 - same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
