"""Schedules: what is stored of one, and which of its firings are made when it is due.

A firing has a planned time. It is due at that time, or a little later if the schedule has jitter.
"""

import hashlib
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
    if body.missed is Missed.SKIP and now - fire_at(name, body.jitter_us, newest) > LATE_US:
        return FiringPlan((), len(found), following)
    return FiringPlan((newest,), len(found) - 1, following)
