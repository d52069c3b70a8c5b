"""Schedules: what is stored of one, and which of its firings are made when it is due.

A firing has a planned time. It is due at that time, or a little later if the schedule has jitter.

The planned time is the identity of a firing: no job is made twice for one. If the clock was ahead and is set back, planned times
come again. So a schedule keeps its runs: a run is a span of planned times that were all made, or left out on purpose.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from holdfast.core import limits
from holdfast.core.model import Micros


class Missed(StrEnum):
    """What happens to firings that no process made in time."""

    SKIP = "skip"
    ONE = "one"
    """One job is made for all of them."""
    ALL = "all"


class Overlap(StrEnum):
    """What a firing does while the job of the firing before has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL = "cancel"
    """The earlier job is cancelled."""


class ScheduleBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule as it is stored. It has either `cron` or `every_us`."""

    job: msgspec.Raw
    """The payload of the `enqueued` event of its jobs, without their times."""
    cron: str | None = None
    every_us: int | None = None
    tz: str = "UTC"
    missed: Missed = Missed.ONE
    overlap: Overlap = Overlap.ALLOW
    jitter_us: int = 0
    start_at: Micros | None = None
    end_at: Micros | None = None
    correlation_id: str | None = None
    trace_id: str | None = None

    def has_times_of(self, other: "ScheduleBody") -> bool:
        """Return whether both schedules fire at the same times."""
        return all(getattr(self, name) == getattr(other, name) for name in _TIMING)


_TIMING = ("cron", "every_us", "tz", "jitter_us", "start_at", "end_at")
LATE_US = limits.FIRING_LATE_MS * 1_000
RUNS_MAX = 8
"""Runs of a schedule that are kept. Each outage and each step of the clock ends one."""


class PlannedTimes(Protocol):
    """The planned times of a schedule."""

    def after(self, at: Micros) -> Micros | None:
        """Return the first planned time after `at`. None if there is none."""

    def newest(self, at: Micros) -> Micros | None:
        """Return the last planned time that is not after `at`. None if there is none."""


class FiringPlan(NamedTuple):
    times: tuple[Micros, ...]
    """The planned times of the firings to make, oldest first."""
    skipped: int
    """Firings that are not made. Of very many, only the first ones are counted."""
    next_at: Micros | None
    """The planned time of the next firing."""
    run_at: Micros | None = None
    """The newest firing that is due, if earlier ones were missed: a new run begins with it."""


Span = tuple[Micros, Micros]
"""Planned times from the first, until before the second."""


class UnmadeTimes:
    """The planned times of a schedule that are in none of its runs."""

    def __init__(self, times: PlannedTimes, runs: Sequence[Span]) -> None:
        self._times = times
        self._runs = runs

    def _run_of(self, planned: Micros) -> Span | None:
        return next((run for run in self._runs if run[0] <= planned < run[1]), None)

    def after(self, at: Micros) -> Micros | None:
        found = self._times.after(at)
        while found is not None and (run := self._run_of(found)) is not None:
            found = self._times.after(run[1] - 1)
        return found

    def newest(self, at: Micros) -> Micros | None:
        found = self._times.newest(at)
        while found is not None and (run := self._run_of(found)) is not None:
            found = self._times.newest(run[0] - 1)
        return found


class Position(NamedTuple):
    """Where a schedule stands among its planned times."""

    next_at: Micros | None
    """The next firing. None if there is none, or the schedule is paused."""
    run_at: Micros | None
    """The first firing of the run that ends before `next_at`."""
    made: tuple[Span, ...] = ()
    """Earlier runs, the latest last. Older ones than RUNS_MAX are forgotten."""

    def runs(self) -> tuple[Span, ...]:
        """Return all runs, with the current one."""
        end = limits.TIME_US_MAX + 1 if self.next_at is None else self.next_at
        if self.run_at is None or self.run_at >= end:
            return self.made
        return (*self.made, (self.run_at, end))[-RUNS_MAX:]

    def moved(self, plan: FiringPlan) -> "Position":
        """Return the position after the firings of a plan."""
        if plan.run_at is None:
            return self._replace(next_at=plan.next_at)
        return Position(plan.next_at, plan.run_at, self.runs())

    def after_refusal(self, times: PlannedTimes, now: Micros) -> "Position":
        """Return the position after a firing that was refused. Others that are due are left out."""
        assert self.next_at is not None
        unmade = UnmadeTimes(times, self.made)
        following = unmade.after(now)
        if following == unmade.after(self.next_at):
            return self._replace(next_at=following)
        return Position(following, unmade.newest(now), self.runs())

    def realigned(self, times: PlannedTimes, now: Micros) -> "Position | None":
        """Return the position of a schedule after the clock was set back. None if it stays.

        It goes on with the first planned time that is in no run.
        """
        found = begin(times, now, self.runs())
        if found.next_at is None or (self.next_at is not None and found.next_at >= self.next_at):
            return None
        return found


def begin(times: PlannedTimes, now: Micros, runs: tuple[Span, ...] = ()) -> Position:
    """Return the position of a schedule that begins now, and has had these runs before."""
    planned = UnmadeTimes(times, runs).after(now)
    return Position(planned, planned, runs)


def fire_at(name: str, jitter_us: int, planned: Micros) -> Micros:
    """Return when a firing is due. The part of jitter follows from name and time, so every process computes the same."""
    if not jitter_us:
        return planned
    drawn = hashlib.sha256(f"{name}\0{planned}".encode()).digest()[:8]
    return planned + int.from_bytes(drawn, "big") % jitter_us


def plan_firings(name: str, body: ScheduleBody, times: PlannedTimes, next_at: Micros, now: Micros) -> FiringPlan:
    """Return what a schedule does now. `next_at` is the planned time of its first firing that was not made."""

    def is_due(planned: Micros | None) -> bool:
        return planned is not None and fire_at(name, body.jitter_us, planned) <= now

    found: list[Micros] = []
    following: Micros | None = next_at
    most = limits.FIRINGS_MAX if body.missed is Missed.ALL else limits.MISSED_FIRINGS_COUNTED_MAX
    while following is not None and is_due(following) and len(found) < most:
        found.append(following)
        following = times.after(following)
    if body.missed is Missed.ALL or not found:
        return FiringPlan(tuple(found), 0, following)
    if is_due(following):
        found.append(times.newest(now - body.jitter_us) or found[-1])
        following = times.after(found[-1])
    newest = found[-1]
    run_at = newest if len(found) > 1 else None
    if body.missed is Missed.SKIP and now - fire_at(name, body.jitter_us, newest) > LATE_US:
        return FiringPlan((), len(found), following, run_at)
    return FiringPlan((newest,), len(found) - 1, following, run_at)
