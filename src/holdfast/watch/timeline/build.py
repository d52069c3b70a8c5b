"""The timeline of one job: its attempts, waits, heartbeats and marks, in one pass over its events.

The answer is bounded, however long the history is.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple

import msgspec

from holdfast.core import payloads
from holdfast.core.explain.formatting import to_datetime
from holdfast.core.explain.model import NextStep
from holdfast.core.limits import TIMELINE_ATTEMPTS_MAX, TIMELINE_BEATS_MAX, TIMELINE_MARKS_MAX, TIMELINE_SPANS_MAX
from holdfast.core.model import ASSIST_REQUESTED, TERMINAL, Actor, EventType, Micros, Phase, Policy, Status
from holdfast.watch.timeline.model import (
    BeatBin,
    PhaseSpan,
    StallSpan,
    Timeline,
    TimelineAttempt,
    TimelineBeats,
    TimelineMark,
    TimeSpan,
    WaitSpan,
)
from holdfast.watch.timeline.rows import TimelineBeat, TimelineEvent

_STAGE = re.compile(rb'\{"stage":("(?:[^"\\]|\\.)*")')
_rev = itemgetter(0)


class _Attempt:
    """An attempt that is being read."""

    def __init__(self, event: TimelineEvent, policy: Policy | None) -> None:
        self.n = event.attempt
        self.actor_text = event.actor
        self.policy = policy
        self.claimed_at = event.received_at
        self.started_at: Micros | None = None
        self.ended_at: Micros | None = None
        self.end: str | None = None
        self.phases: list[tuple[Phase, Micros, Micros | None]] = []
        self.stalls: list[tuple[str | None, Micros, Micros | None]] = []
        self.leases: list[tuple[Micros, Micros]] = []
        self.renew(event.received_at)

    @property
    def interval_us(self) -> int:
        return 0 if self.policy is None else self.policy.heartbeat_interval_ms * 1_000

    @property
    def lease_us(self) -> int:
        return 0 if self.policy is None else self.policy.lease_ttl_ms * 1_000

    def renew(self, at: Micros) -> None:
        until = at + self.lease_us
        if self.leases and at <= self.leases[-1][1]:
            self.leases[-1] = (self.leases[-1][0], max(until, self.leases[-1][1]))
        else:
            self.leases.append((at, until))

    def enter(self, phase: Phase, at: Micros) -> None:
        self._leave(at)
        self.phases.append((phase, at, None))

    def _leave(self, at: Micros) -> None:
        if self.phases and self.phases[-1][2] is None:
            phase, start, _ = self.phases[-1]
            self.phases[-1] = (phase, start, at)

    def stall(self, reason: str | None, at: Micros) -> None:
        self._leave(at)
        self._end_lease(at)
        self.stalls.append((reason, at, None))

    def resume(self, at: Micros) -> None:
        self._end_stall(at)
        if self.phases:
            self.enter(self.phases[-1][0], at)
        self.renew(at)

    def close(self, end: str, at: Micros) -> None:
        self._leave(at)
        self._end_stall(at)
        self._end_lease(at)
        self.end, self.ended_at = end, at

    def _end_stall(self, at: Micros) -> None:
        if self.stalls and self.stalls[-1][2] is None:
            reason, start, _ = self.stalls[-1]
            self.stalls[-1] = (reason, start, at)

    def _end_lease(self, at: Micros) -> None:
        start, until = self.leases[-1]
        self.leases[-1] = (start, min(until, at))

    def overlaps(self, since: Micros, until: Micros) -> bool:
        return self.claimed_at < until and (self.ended_at is None or self.ended_at >= since)

    def public(self) -> TimelineAttempt:
        actor = Actor.parse(self.actor_text)
        return TimelineAttempt(
            n=self.n,
            worker=actor.name,
            incarnation=actor.incarnation,
            claimed_at=to_datetime(self.claimed_at),
            started_at=_time(self.started_at),
            ended_at=_time(self.ended_at),
            end=self.end,
            phases=[PhaseSpan(phase, to_datetime(start), _time(end)) for phase, start, end in self.phases[-TIMELINE_SPANS_MAX:]],
            leases=[TimeSpan(to_datetime(start), to_datetime(end)) for start, end in self.leases[-TIMELINE_SPANS_MAX:]],
            stalls=[StallSpan(to_datetime(start), _time(end), why) for why, start, end in self.stalls[-TIMELINE_SPANS_MAX:]],
            policy=self.policy,
        )


def _time(at: Micros | None) -> datetime | None:
    return None if at is None else to_datetime(at)


_Mark = tuple[Micros, str, int, str, str | bytes | None]
"""The time, the type, the revision, the actor, and a reason or the JSON of a stage."""


class _Reader:
    """Reads the events of a job in their order."""

    def __init__(self, policies: dict[int, Policy], view: "TimelineView") -> None:
        self._policies = policies
        self._view = view
        self.attempts: list[_Attempt] = []
        self.waits: list[list[Micros | None]] = []
        """The start, the end and the time from which the job could be claimed."""
        self.beats: list[tuple[Micros, int]] = []
        """The time of each heartbeat, and how late it was, in microseconds. An early one has a negative number."""
        self.marks: list[_Mark] = []
        self.beat_marks: list[_Mark] = []
        self._last_at: Micros = 0
        """The last proof of life of the holder."""
        self._stage: bytes | None = None

    def read_event(self, event: TimelineEvent) -> None:
        at, type_ = event.received_at, event.type
        if type_ == EventType.CLAIMED:
            self._claim(event)
            return
        attempt = self.attempts[-1] if self.attempts else None
        if type_ == EventType.STARTED and attempt is not None:
            attempt.started_at = self._last_at = at
            attempt.enter(Phase.EXECUTING, at)
            attempt.renew(at)
            return
        if self._view.since <= at < self._view.until:
            self.marks.append((at, type_, event.rev, event.actor, event.reason))
        if type_ == EventType.ENQUEUED:
            self.waits.append([at, None, None])
        elif type_ in _AVAILABILITY:
            self._available(event)
        elif attempt is not None and attempt.ended_at is None:
            self._change(attempt, event)
        if event.to_status in TERMINAL and self.waits[-1][1] is None:
            self.waits[-1][1] = at

    def _change(self, attempt: _Attempt, event: TimelineEvent) -> None:
        at, type_ = event.received_at, event.type
        if type_ in _PHASES:
            attempt.enter(_PHASES[type_], at)
        elif type_ == EventType.STALLED:
            attempt.stall(event.reason, at)
        elif type_ == EventType.RESUMED:
            self._last_at = at
            attempt.resume(at)
        elif type_ == EventType.REQUEUED:
            attempt.close(type_, at)
            self.waits.append([at, None, payloads.decode(payloads.RequeuedPayload, event.payload).available_at])
        else:
            attempt.close(type_, at)

    def _available(self, event: TimelineEvent) -> None:
        if event.type == EventType.UNBLOCKED:
            self.waits[-1][2] = payloads.decode(payloads.UnblockedPayload, event.payload).available_at
        elif event.type == EventType.POSTPONED:
            self.waits[-1][2] = payloads.decode(payloads.PostponedPayload, event.payload).available_at
        else:
            self.waits[-1][2] = payloads.decode(payloads.RescheduledPayload, event.payload).available_at

    def _claim(self, event: TimelineEvent) -> None:
        at = event.received_at
        if self.attempts and self.attempts[-1].ended_at is None:
            self.attempts[-1].close(event.type, at)
        if self.waits[-1][1] is None:
            self.waits[-1][1] = at
        self.attempts.append(_Attempt(event, None if event.policy_id is None else self._policies[event.policy_id]))
        self._last_at, self._stage = at, None

    def read_beats(self, beats: Iterable[TimelineBeat]) -> None:
        """Read heartbeats of one attempt that follow each other. It is one loop, because there may be thousands."""
        attempt = self.attempts[-1]
        last_at, due_us, since, until = self._last_at, attempt.interval_us, self._view.since, self._view.until
        lease_us = attempt.lease_us
        begin, end = attempt.leases[-1]
        for beat in beats:
            at = beat[1]
            if since <= at < until:
                self.beats.append((at, at - last_at - due_us))
                if beat[4] is not None:
                    self._mark_beat(attempt, beat, beat[4])
            last_at = at
            if not beat[2]:
                if at > end:
                    attempt.leases[-1] = (begin, end)
                    attempt.leases.append((at, at))
                    begin = at
                end = at + lease_us
        attempt.leases[-1] = (begin, end)
        self._last_at = last_at

    def _mark_beat(self, attempt: _Attempt, beat: TimelineBeat, payload: bytes) -> None:
        rev, at, _, reason, _ = beat
        actor = attempt.actor_text
        marks = self.beat_marks
        stage = _STAGE.match(payload)
        if stage is not None and stage[1] != self._stage:
            self._stage = stage[1]
            marks.append((at, "stage", rev, actor, stage[1]))
        if b'"checkpoint":' in payload:
            marks.append((at, "checkpoint", rev, actor, None))
        if b'"undo":' in payload:
            marks.append((at, "undo", rev, actor, None))
        if reason == ASSIST_REQUESTED:
            self.marks.append((at, "assist_requested", rev, actor, None))


_PHASES = {
    EventType.ASSIST_STARTED.value: Phase.ASSISTED,
    EventType.ASSIST_ENDED.value: Phase.EXECUTING,
    EventType.CANCEL_REQUESTED.value: Phase.ABORTING,
}
_AVAILABILITY = frozenset({EventType.UNBLOCKED.value, EventType.RESCHEDULED.value, EventType.POSTPONED.value})


class TimelineJob(NamedTuple):
    """The facts of the job's row."""

    id: int
    rev: int
    status: Status
    available_at: Micros
    next: Sequence[NextStep]


class TimelineView(NamedTuple):
    """The part of the history that is shown, and how many bins fit into it."""

    since: Micros
    until: Micros
    width: int


class TimelineHistory(NamedTuple):
    """All events of a job, by revision."""

    events: Sequence[TimelineEvent]
    beats: Sequence[TimelineBeat]
    policies: dict[int, Policy]
    """The policies that the events refer to."""

    def status_since(self) -> Micros:
        """Return when the job got its status."""
        since, status = 0, ""
        for event in self.events:
            if event.to_status != status:
                since, status = event.received_at, event.to_status
        return since


def build_timeline(job: TimelineJob, history: TimelineHistory, view: TimelineView, now: Micros) -> Timeline:
    """Return the timeline of a job."""
    reader = _Reader(history.policies, view)
    place = 0
    for event in history.events:
        end = bisect_left(history.beats, event.rev, place, key=_rev)
        if end > place:
            reader.read_beats(history.beats[place:end])
            place = end
        reader.read_event(event)
    if place < len(history.beats):
        reader.read_beats(history.beats[place:])
    if reader.waits[-1][2] is None:
        # No later event has changed the time that the row has.
        reader.waits[-1][2] = job.available_at
    attempts = [attempt for attempt in reader.attempts if attempt.overlaps(view.since, view.until)]
    shown = attempts[-TIMELINE_ATTEMPTS_MAX:]
    marks, marks_cut = _marks(reader)
    return Timeline(
        job_id=job.id,
        rev=job.rev,
        status=job.status,
        as_of=to_datetime(now),
        waits=[
            WaitSpan(to_datetime(start or 0), _time(end), _time(ready_at))
            for start, end, ready_at in reader.waits[-TIMELINE_ATTEMPTS_MAX:]
        ],
        attempts=[attempt.public() for attempt in shown],
        attempts_cut=len(attempts) - len(shown),
        beats=_beats(reader.beats, view.width),
        marks=marks,
        marks_cut=marks_cut,
        next=list(job.next),
    )


def _marks(reader: _Reader) -> tuple[list[TimelineMark], int]:
    """Return the marks that are shown, and how many are left out. Those of heartbeats are left out first, then the oldest."""
    shown = reader.marks[-TIMELINE_MARKS_MAX:]
    room = TIMELINE_MARKS_MAX - len(shown)
    shown += reader.beat_marks[-room:] if room else []
    shown.sort(key=lambda mark: mark[2])
    return [_public_mark(*mark) for mark in shown], len(reader.marks) + len(reader.beat_marks) - len(shown)


def _public_mark(at: Micros, type_: str, rev: int, actor: str, detail: str | bytes | None) -> TimelineMark:
    reason: str | None = msgspec.json.decode(detail) if isinstance(detail, bytes) else detail
    return TimelineMark(to_datetime(at), type_, rev, actor, reason)


def _beats(found: list[tuple[Micros, int]], width: int) -> TimelineBeats:
    if len(found) <= TIMELINE_BEATS_MAX:
        return TimelineBeats(len(found), exact=[to_datetime(at) for at, _ in found])
    start = min(at for at, _ in found)
    size = max(1, -(-(max(at for at, _ in found) + 1 - start) // width))
    counts: dict[int, tuple[int, int]] = {}
    for at, late in found:
        number = (at - start) // size
        n, most = counts.get(number, (0, 0))
        counts[number] = (n + 1, max(most, late))
    edges = {number: to_datetime(start + number * size) for first in counts for number in (first, first + 1)}
    bins = [BeatBin(edges[number], edges[number + 1], n, late // 1_000) for number, (n, late) in sorted(counts.items())]
    return TimelineBeats(len(found), bins=bins)
