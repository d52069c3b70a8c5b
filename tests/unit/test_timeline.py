"""The timeline of a job: one pass over its events. The contract tests compare it with real histories."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.model import Policy, Status
from holdfast.watch.timeline import build as timeline
from holdfast.watch.timeline.build import TimelineHistory, TimelineJob, TimelineView, build_timeline
from holdfast.watch.timeline.model import Timeline
from holdfast.watch.timeline.rows import TimelineBeat, TimelineEvent

SECOND = 1_000_000
WORKER = "worker:w-1#boot"
POLICIES = {1: Policy(lease_ttl_ms=30_000, heartbeat_interval_ms=10_000)}
WIDE = TimelineView(0, 10**15, 100)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def event(rev: int, type_: str, seconds: int, to_status: str, attempt: int = 1, **fields: Any) -> TimelineEvent:
    values = {"actor": WORKER, "reason": None, "policy_id": None, "payload": None} | fields
    return TimelineEvent(rev, type_, seconds * SECOND, values["actor"], attempt, to_status, *list(values.values())[1:])


def beat(rev: int, seconds: int, body: bytes | None = None, reason: str | None = None, *, stalled: bool = False) -> TimelineBeat:
    return (rev, seconds * SECOND, stalled, reason, body)


def built(events: list[TimelineEvent], beats: list[TimelineBeat] | None = None, view: TimelineView = WIDE) -> Timeline:
    history = TimelineHistory(events, beats or [], POLICIES)
    job = TimelineJob(7, events[-1].rev, Status(events[-1].to_status), 5 * SECOND, ())
    return build_timeline(job, history, view, 1_000 * SECOND)


ENQUEUED = event(1, "enqueued", 0, "queued", 0, actor="client:kim")
CLAIMED = event(2, "claimed", 10, "claimed", policy_id=1)
STARTED = event(3, "started", 11, "running")


def test_a_lease_that_ran_out_is_followed_by_another():
    found = built([ENQUEUED, CLAIMED, STARTED], [beat(4, 100), beat(5, 105)])
    assert [(span.start, span.end) for span in found.attempts[0].leases] == [(at(10), at(41)), (at(100), at(135))]
    later = built([ENQUEUED, CLAIMED, event(3, "started", 60, "running")])
    assert [(span.start, span.end) for span in later.attempts[0].leases] == [(at(10), at(40)), (at(60), at(90))]


@pytest.mark.parametrize(
    ("body", "types", "stage"),
    [
        (b'{"stage":"a \\"b\\" c","progress":3}', ["stage"], 'a "b" c'),
        (b'{"progress":3,"undo":{"kind":"k"}}', ["undo"], None),
        (b'{"pruned":"00"}', [], None),
    ],
)
def test_heartbeats_with_fields_are_marks(body: bytes, types: list[str], stage: str | None):
    found = built([ENQUEUED, CLAIMED, STARTED], [beat(4, 12, body)])
    assert [mark.type for mark in found.marks[1:]] == types
    if stage is not None:
        assert found.marks[1].reason == stage


def test_bins_have_the_latest_heartbeat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "TIMELINE_BEATS_MAX", 3)
    beats = [beat(4 + number, 20 + number + (15 if number > 5 else 0)) for number in range(10)]
    found = built([ENQUEUED, CLAIMED, STARTED], beats, TimelineView(0, 10**15, 5)).beats
    assert found.exact is None
    assert found.bins is not None
    assert [(one.n, one.late_max_ms) for one in found.bins] == [(5, 0), (1, 0), (4, 6_000)]
    assert all(low.end <= high.start for low, high in zip(found.bins, found.bins[1:], strict=False))
