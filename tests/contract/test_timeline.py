"""The timeline of a job: every fact of its history, and a bounded answer."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.core import limits
from holdfast.testing import ManualClock
from holdfast.watch.timeline import build as timeline
from tests.contract.builders import BUILDERS, FINISHED, WINDOW, claim, claimed_stalled, held, queued, refused, running


def seconds(start: Any, at: Any) -> Any:
    return None if at is None else (at - start).total_seconds()


def live(ledger: Ledger, clock: ManualClock) -> int:
    """A job with two attempts, the first of which stalls twice."""
    policy: Any = {**WINDOW, "backoff_base": "8s", "backoff_max": "8s", "lease_ttl": "30s", "heartbeat_interval": "10s"}
    job = ledger.enqueue("walk", delay=2, policy=policy)
    clock.advance(3)
    [first] = ledger.claim("w-1")
    clock.advance(1)
    ledger.start(held(first))
    clock.advance(5)
    ledger.heartbeat(held(first), stage="FETCH", checkpoint={"page": 1})
    clock.advance(25)
    ledger.heartbeat(held(first), stage="FETCH", undo={"kind": "rename"})
    ledger.assist(job.id, actor="kim")
    clock.advance(1)
    ledger.unassist(job.id)
    clock.advance(1)
    ledger.stall(held(first), reason="ROBOT_ERROR")
    clock.advance(4)
    ledger.resume(held(first))
    clock.advance(2)
    ledger.stall(held(first))
    clock.advance(1)
    ledger.requeue(job.id)
    clock.advance(60)
    second = claim(ledger, job.id, "w-2")
    ledger.start(second.fence)
    ledger.cancel(job.id, reason="not needed")
    clock.advance(1)
    return job.id


def test_a_life_with_two_attempts(ledger: Ledger, clock: ManualClock):
    start = clock.now()
    job_id = live(ledger, clock)
    found = ledger.timeline(job_id)

    def at(moment: Any) -> Any:
        return seconds(start, moment)

    assert (found.job_id, found.status, found.rev, found.as_of) == (job_id, "running", ledger.get(job_id).rev, clock.now())
    one, two = found.attempts
    assert (one.n, one.worker, one.end, at(one.claimed_at), at(one.started_at), at(one.ended_at)) == (
        1,
        "w-1",
        "requeued",
        3,
        4,
        43,
    )
    assert [(span.phase.value, at(span.start), at(span.end)) for span in one.phases] == [
        ("executing", 4, 34),
        ("assisted", 34, 35),
        ("executing", 35, 36),
        ("executing", 40, 42),
    ]
    assert [(at(span.start), at(span.end)) for span in one.leases] == [(3, 36), (40, 42)]
    assert [(span.reason, at(span.start), at(span.end)) for span in one.stalls] == [
        ("WORKER_ERROR", 36, 40),
        ("WORKER_ERROR", 42, 43),
    ]
    assert one.policy is not None
    assert one.policy.lease_ttl_ms == 30_000
    assert (two.n, two.worker, two.end, two.ended_at, at(two.claimed_at)) == (2, "w-2", None, None, 103)
    assert [(span.phase.value, at(span.end)) for span in two.phases] == [("executing", 103), ("aborting", None)]
    assert [(at(span.start), at(span.end)) for span in two.leases] == [(103, 133)]
    waits = [(at(span.start), at(span.ready_at), at(span.end)) for span in found.waits]
    assert waits[0][::2] == (0, 3)
    assert waits[1][::2] == (43, 103)
    assert 43 < waits[1][1] <= 103
    assert found.beats.n == 2
    assert [at(moment) for moment in found.beats.exact or []] == [9, 34]
    marks = [(mark.type, at(mark.at)) for mark in found.marks]
    assert marks == [
        ("enqueued", 0), ("stage", 9), ("checkpoint", 9), ("undo", 34), ("assist_started", 34), ("assist_ended", 35),
        ("stalled", 36), ("resumed", 40), ("stalled", 42), ("requeued", 43), ("cancel_requested", 103),
    ]  # fmt: skip
    assert [mark.reason for mark in found.marks if mark.type == "stage"] == ["FETCH"]
    assert found.marks_cut == found.attempts_cut == 0
    assert found.next == ledger.explain(job_id).next
    encoded = msgspec.json.decode(msgspec.json.encode(found))
    assert set(encoded["attempts"][0]["leases"][0]) == {"from", "to"}


def test_a_job_of_each_status_has_a_timeline(ledger: Ledger):
    for build in BUILDERS.values():
        made = build(ledger)
        job, found = ledger.get(made.id), ledger.timeline(made.id)
        assert len(found.attempts) == job.attempt
        assert (found.waits[-1].end is None) == (job.status == "queued")
        ended = job.status.value in FINISHED
        assert [attempt.end for attempt in found.attempts] == [job.status.value if ended else None] * job.attempt


def test_a_claim_that_takes_over_ends_the_attempt(ledger: Ledger, clock: ManualClock):
    made = running(ledger)
    clock.advance(100)
    claim(ledger, made.id, "w-2")
    first, second = ledger.timeline(made.id).attempts
    assert (first.end, second.end, second.n) == ("claimed", None, 2)
    assert [span.reason for span in first.stalls] == ["NO_HEARTBEAT"]


def test_waits_end_and_begin_with_the_queue(ledger: Ledger, clock: ManualClock):
    first = queued(ledger)
    waiting = ledger.enqueue("k", depends_on=[first.id])
    made = claim(ledger, first.id)
    ledger.start(made.fence)
    clock.advance(5)
    ledger.complete(made.fence)
    [span] = ledger.timeline(waiting.id).waits
    assert (span.start, span.ready_at, span.end) == (waiting.created_at, clock.now(), None)
    ledger.reschedule(waiting.id, delay=60)
    [span] = ledger.timeline(waiting.id).waits
    assert span.ready_at == clock.now() + timedelta(seconds=60)
    clock.advance(1)
    ledger.cancel(waiting.id)
    [span] = ledger.timeline(waiting.id).waits
    assert span.end == clock.now()


def test_many_heartbeats_are_counted_by_bins(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "TIMELINE_BEATS_MAX", 10)
    made = running(ledger, policy={"heartbeat_interval": "1s", "missed_beats_max": 60, "lease_ttl": "60s"})
    start = clock.now()
    for number in range(40):
        clock.advance(6 if number == 20 else 1)
        ledger.heartbeat(made.fence)
    found = ledger.timeline(made.id, width=5)
    assert found.beats.exact is None
    bins = found.beats.bins or []
    assert len(bins) <= 5
    assert found.beats.n == sum(one.n for one in bins) == 40
    assert max(one.late_max_ms for one in bins) == 5_000
    assert sum(one.late_max_ms > 0 for one in bins) == 1
    assert all(one.start < one.end for one in bins)
    part = ledger.timeline(made.id, since=start, until=start + timedelta(seconds=6))
    assert len(part.beats.exact or []) == 5
    assert [mark.type for mark in part.marks] == ["enqueued"]


def test_a_part_of_a_timeline_has_the_attempts_and_marks_of_that_time(ledger: Ledger, clock: ManualClock):
    made = queued(ledger, policy={"backoff_base": 0, "backoff_max": 0})
    for _ in range(3):
        now = claim(ledger, made.id)
        ledger.start(now.fence)
        clock.advance(10)
        ledger.fail(now.fence, "again", retry_after=0)
        clock.advance(10)
    start = ledger.get(made.id).created_at
    part = ledger.timeline(made.id, since=start + timedelta(seconds=15), until=start + timedelta(seconds=31))
    assert [attempt.n for attempt in part.attempts] == [2]
    assert [mark.type for mark in part.marks] == ["stalled", "requeued"]


def test_a_timeline_is_bounded(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "TIMELINE_ATTEMPTS_MAX", 2)
    monkeypatch.setattr(timeline, "TIMELINE_MARKS_MAX", 3)
    monkeypatch.setattr(timeline, "TIMELINE_SPANS_MAX", 1)
    made = queued(ledger, policy=WINDOW)
    for number in range(4):
        now = claim(ledger, made.id)
        ledger.start(now.fence)
        for _ in range(2):
            ledger.heartbeat(now.fence, stage=f"S{number}", checkpoint=number)
            ledger.stall(now.fence)
            ledger.resume(now.fence)
        ledger.release(now.fence)
    found = ledger.timeline(made.id)
    assert ([attempt.n for attempt in found.attempts], found.attempts_cut) == ([3, 4], 2)
    assert len(found.marks) == 3
    assert found.marks_cut > 10
    assert max(len(attempt.stalls) for attempt in found.attempts) == 1
    monkeypatch.setattr(timeline, "TIMELINE_MARKS_MAX", 30)
    assert {mark.type for mark in ledger.timeline(made.id).marks} >= {"stage", "checkpoint", "requeued"}


def test_a_long_checkpoint_is_not_read(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, stage="S" * 200, checkpoint={"text": "x" * 100_000})
    found = ledger.timeline(made.id)
    assert [mark.type for mark in found.marks[-2:]] == ["stage", "checkpoint"]
    assert found.marks[-1].reason is None


def test_a_request_for_assistance_is_a_mark(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, assist_requested=True)
    assert ledger.timeline(made.id).marks[-1].type == "assist_requested"


@pytest.mark.parametrize(
    ("chosen", "code", "field"),
    [
        ({"width": 0}, "limit_exceeded", "width"),
        ({"width": limits.TIMELINE_WIDTH_MAX + 1}, "limit_exceeded", "width"),
        ({"width": "9"}, "validation_error", "width"),
        ({"since": 7}, "validation_error", "since"),
        ({"since": "later"}, "validation_error", "since"),
    ],
    ids=repr,
)
def test_a_wrong_part_is_refused(ledger: Ledger, clock: ManualClock, chosen: dict[str, Any], code: str, field: str):
    made = queued(ledger)
    if chosen.get("since") == 7:
        chosen = {"since": clock.now(), "until": clock.now()}
    with refused(code) as caught:
        ledger.timeline(made.id, **chosen)
    assert caught.value.context["field"] == field


def test_an_unknown_job_has_no_timeline(ledger: Ledger):
    with refused("not_found"):
        ledger.timeline(77)


def test_an_attempt_that_stalled_before_its_start(ledger: Ledger):
    made = claimed_stalled(ledger)
    ledger.heartbeat(made.fence)
    ledger.start(made.fence)
    found = ledger.timeline(made.id)
    [attempt] = found.attempts
    assert (attempt.phases, len(attempt.leases), len(attempt.stalls), found.beats.n) == ([], 1, 1, 1)
