"""The timeline of a job: one pass over its events. The contract tests compare it with real histories."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core import payloads
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


def test_a_job_that_waits():
    found = built([ENQUEUED])
    assert (found.job_id, found.status, found.as_of, found.attempts) == (7, "queued", at(1_000), [])
    assert [(wait.start, wait.end, wait.ready_at) for wait in found.waits] == [(at(0), None, at(5))]
    assert found.beats.exact == []
    assert [mark.actor for mark in found.marks] == ["client:kim"]


def test_a_job_that_never_ran_ends():
    found = built([ENQUEUED, event(2, "cancelled", 3, "cancelled", 0)])
    assert (found.waits[0].end, found.attempts) == (at(3), [])


def test_later_times_of_a_wait():
    moved = event(2, "moved", 1, "queued", 0)
    unblocked = event(3, "unblocked", 2, "queued", 0, payload=payloads.UnblockedPayload(8 * SECOND).encode())
    assert built([ENQUEUED, moved, unblocked]).waits[0].ready_at == at(8)
    later = event(4, "rescheduled", 3, "queued", 0, payload=payloads.RescheduledPayload(9 * SECOND, 8 * SECOND).encode())
    assert built([ENQUEUED, moved, unblocked, later]).waits[0].ready_at == at(9)


def test_an_attempt_with_every_change():
    requeued = payloads.RequeuedPayload(available_at=70 * SECOND).encode()
    found = built(
        [
            ENQUEUED,
            CLAIMED,
            STARTED,
            event(6, "assist_started", 50, "running", actor="operator:kim"),
            event(7, "assist_ended", 51, "running"),
            event(8, "stalled", 52, "stalled", reason="NO_HEARTBEAT"),
            event(10, "resumed", 54, "running"),
            event(11, "cancel_requested", 55, "running"),
            event(12, "stalled", 56, "stalled"),
            event(13, "requeued", 60, "queued", payload=requeued),
            event(14, "claimed", 80, "claimed", 2, policy_id=1),
            event(15, "stalled", 81, "stalled", 2),
            event(16, "resumed", 82, "running", 2),
            event(17, "succeeded", 83, "succeeded", 2),
            event(18, "discarded", 90, "succeeded", 2),
        ],
        [beat(4, 20, b'{"stage":"FETCH"}'), beat(5, 49, b'{"stage":"FETCH","checkpoint":1}'), beat(9, 53, stalled=True)],
    )
    first, second = found.attempts
    assert (first.n, first.worker, first.incarnation, first.end, first.ended_at) == (1, "w-1", "boot", "requeued", at(60))
    assert [(span.phase.value, span.start, span.end) for span in first.phases] == [
        ("executing", at(11), at(50)),
        ("assisted", at(50), at(51)),
        ("executing", at(51), at(52)),
        ("executing", at(54), at(55)),
        ("aborting", at(55), at(56)),
    ]
    assert [(span.start, span.end) for span in first.leases] == [(at(10), at(52)), (at(54), at(56))]
    assert [(span.reason, span.start, span.end) for span in first.stalls] == [
        ("NO_HEARTBEAT", at(52), at(54)),
        (None, at(56), at(60)),
    ]
    assert (second.phases, second.started_at, second.end) == ([], None, "succeeded")
    assert [(wait.start, wait.ready_at, wait.end) for wait in found.waits] == [(at(0), None, at(10)), (at(60), at(70), at(80))]
    assert (found.beats.n, found.beats.exact) == (3, [at(20), at(49), at(53)])
    assert [mark.type for mark in found.marks] == [
        "enqueued", "stage", "checkpoint", "assist_started", "assist_ended", "stalled", "resumed", "cancel_requested", "stalled",
        "requeued", "stalled", "resumed", "succeeded", "discarded",
    ]  # fmt: skip


def test_a_claim_without_a_requeue_ends_the_attempt_before():
    found = built([ENQUEUED, CLAIMED, event(3, "stalled", 50, "stalled"), event(4, "claimed", 60, "claimed", 2)])
    assert [(attempt.end, attempt.ended_at) for attempt in found.attempts] == [("claimed", at(60)), (None, None)]
    assert found.attempts[1].policy is None
    assert [(span.start, span.end) for span in found.attempts[1].leases] == [(at(60), at(60))]


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


def test_a_request_for_assistance():
    found = built([ENQUEUED, CLAIMED, STARTED], [beat(4, 12, b'{"assist_requested":true}', "ASSIST_REQUESTED")])
    assert [(mark.type, mark.actor) for mark in found.marks[1:]] == [("assist_requested", WORKER)]


def test_bins_have_the_latest_heartbeat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "TIMELINE_BEATS_MAX", 3)
    beats = [beat(4 + number, 20 + number + (15 if number > 5 else 0)) for number in range(10)]
    found = built([ENQUEUED, CLAIMED, STARTED], beats, TimelineView(0, 10**15, 5)).beats
    assert found.exact is None
    assert found.bins is not None
    assert [(one.n, one.late_max_ms) for one in found.bins] == [(5, 0), (1, 0), (4, 6_000)]
    assert all(low.end <= high.start for low, high in zip(found.bins, found.bins[1:], strict=False))


def test_a_part_of_the_history():
    found = built(
        [ENQUEUED, CLAIMED, STARTED, event(6, "failed", 40, "failed"), event(7, "discarded", 99, "failed")],
        [beat(4, 15, b'{"stage":"A"}'), beat(5, 30, b'{"stage":"B"}')],
        TimelineView(20 * SECOND, 41 * SECOND, 10),
    )
    assert ([mark.type for mark in found.marks], found.beats.exact) == (["stage", "failed"], [at(30)])
    assert len(found.attempts) == 1
    early = built([ENQUEUED, CLAIMED, STARTED], [], TimelineView(0, SECOND, 10))
    assert early.attempts == []
    late = built([ENQUEUED, CLAIMED, event(3, "failed", 40, "failed")], [], TimelineView(50 * SECOND, 60 * SECOND, 10))
    assert (late.attempts, late.marks) == ([], [])


def test_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "TIMELINE_MARKS_MAX", 2)
    monkeypatch.setattr(timeline, "TIMELINE_ATTEMPTS_MAX", 1)
    events = [ENQUEUED, CLAIMED, event(4, "stalled", 20, "stalled"), event(5, "claimed", 30, "claimed", 2, policy_id=1)]
    found = built(events, [beat(3, 15, b'{"stage":"A"}')])
    assert ([attempt.n for attempt in found.attempts], found.attempts_cut) == ([2], 1)
    assert ([mark.type for mark in found.marks], found.marks_cut) == (["enqueued", "stalled"], 1)


def test_since_when_a_job_has_its_status():
    history = TimelineHistory([ENQUEUED, CLAIMED, STARTED, event(4, "assist_started", 20, "running")], [], POLICIES)
    assert history.status_since() == 11 * SECOND
