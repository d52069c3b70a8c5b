"""The answer of `timeline`: what a drawing of a job's history needs."""

from datetime import datetime

import msgspec

from holdfast.core.explain.model import NextStep
from holdfast.core.model import Phase, Policy, Status

_SPAN = {"start": "from", "end": "to"}


class TimeSpan(msgspec.Struct, frozen=True, rename=_SPAN):
    start: datetime
    end: datetime | None
    """None if it is not over."""


class PhaseSpan(msgspec.Struct, frozen=True, rename=_SPAN):
    phase: Phase
    start: datetime
    end: datetime | None


class StallSpan(msgspec.Struct, frozen=True, rename=_SPAN):
    start: datetime
    end: datetime | None
    reason: str | None


class WaitSpan(msgspec.Struct, frozen=True, rename=_SPAN):
    """The time in which the job was queued. Until `ready_at` it could not be claimed; None if that is not known."""

    start: datetime
    end: datetime | None
    ready_at: datetime | None


class TimelineAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. Its spans are the newest, 100 of each kind at most."""

    n: int
    worker: str
    incarnation: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    end: str | None
    """The type of the event that ended it: the job's end, `requeued`, or `claimed` if another attempt followed at once."""
    phases: list[PhaseSpan]
    leases: list[TimeSpan]
    """Leases that overlap are one. The last one of a held job ends in the future."""
    stalls: list[StallSpan]
    policy: Policy | None


class BeatBin(msgspec.Struct, frozen=True, rename=_SPAN):
    """Heartbeats of one stretch of time, and how late the latest of them was."""

    start: datetime
    end: datetime
    n: int
    late_max_ms: int


class TimelineBeats(msgspec.Struct, frozen=True):
    """The heartbeats, one by one or counted by bins without empty ones."""

    n: int
    exact: list[datetime] | None = None
    bins: list[BeatBin] | None = None


class TimelineMark(msgspec.Struct, frozen=True):
    """Something at one moment. The type is that of an event, or stage, checkpoint, undo or assist_requested for a heartbeat."""

    at: datetime
    type: str
    rev: int
    actor: str
    reason: str | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a drawing of a job's history needs."""

    job_id: int
    rev: int
    status: Status
    as_of: datetime
    waits: list[WaitSpan]
    attempts: list[TimelineAttempt]
    attempts_cut: int
    """How many earlier attempts are left out."""
    beats: TimelineBeats
    marks: list[TimelineMark]
    marks_cut: int
    next: list[NextStep] = []
