"""The audit finds each kind of violation and its place."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import Violation, check_history, check_status
from holdfast.core.model import (
    SYSTEM,
    Actor,
    EventRecord,
    EventType,
    FailureStage,
    Flow,
    JobRecord,
    Phase,
    Policy,
    ReasonCode,
    Role,
    Status,
)
from tests.unit.histories import CLIENT, OPERATOR, SECOND, STEP, T0, WINDOW, WORKER, History, rich

replace = msgspec.structs.replace
ONCE_FAIL = Policy(attempts_max=1, on_exhausted="fail")


def _mutated(history: History, rev: int, /, **changes: Any) -> list[EventRecord]:
    return [replace(event, **changes) if event.rev == rev else event for event in history.events]


def _rules(found: list[Violation]) -> list[tuple[int, str]]:
    return [(violation.rev, violation.rule) for violation in found]


def _running() -> History:
    """Revs: 1 enqueued, 2 claimed, 3 started, 4 heartbeat, 5 succeeded."""
    return History().start().wait(1).beat(progress=1).wait(1).complete()


def _stalled() -> History:
    """Revs: 1 enqueued, 2 claimed, 3 started, 4 stalled by the system, 5 heartbeat, 6 resumed by the system."""
    return History(WINDOW).start().wait(31).sweep().beat().sweep()


def _restalled(**changes: Any) -> list[EventRecord]:
    """A stalled history with a changed payload of the stall."""
    history = _stalled()
    body = payloads.decode(payloads.StalledPayload, history.events[3].payload)
    return _mutated(history, 4, payload=replace(body, **changes).encode())


def _stalled_without_stage() -> list[EventRecord]:
    return _restalled(error=msgspec.Raw(b'{"message":"lost"}'))


def _released_by_reason() -> list[EventRecord]:
    history = History(Policy(attempts_max=1)).start().do(c.Release).start()
    body = payloads.decode(payloads.RequeuedPayload, history.events[4].payload)
    return _mutated(history, 5, payload=replace(body, released=False).encode())


def _stalled_at(seconds: int) -> list[EventRecord]:
    at = _stalled().events[2].received_at + seconds * SECOND
    return [replace(event, received_at=at) if event.rev == 4 else event for event in _restalled(detected_at=at)]


def _refailed(history: History, **changes: Any) -> list[EventRecord]:
    """A permanent failure with a changed payload."""
    history.fail(retryable=False)
    body = replace(payloads.decode(payloads.FailedPayload, history.events[3].payload), **changes)
    return _mutated(history, 4, payload=body.encode(), reason=body.reason_code)


def _without_beat() -> list[EventRecord]:
    history = _stalled()
    return [*history.events[:4], replace(history.events[5], rev=5)]


def _event(after: History, kind: EventType, to: Status, **fields: Any) -> EventRecord:
    job = after.job
    given: dict[str, Any] = {"actor": SYSTEM, "attempt": job.attempt, "correlation_id": job.correlation_id} | fields
    return EventRecord(7, job.rev + 1, kind, after.now, from_status=job.status, to_status=to, **given)


def _requeued(after: History, actor: Actor = SYSTEM) -> list[EventRecord]:
    body = payloads.RequeuedPayload(available_at=after.now).encode()
    return [*after.events, _event(after, EventType.REQUEUED, Status.QUEUED, payload=body, actor=actor)]


def _requeued_while_aborting() -> list[EventRecord]:
    return _requeued(History(WINDOW).start().cancel().stall())


def _requeued_by_its_holder_while_aborting() -> list[EventRecord]:
    return _requeued(History(WINDOW).start().cancel().stall(), WORKER)


def _requeued_exhausted() -> list[EventRecord]:
    return _requeued(History(Policy(attempts_max=1)).start().stall())


def _claimed_exhausted() -> list[EventRecord]:
    history = History(Policy(attempts_max=1)).start().stall()
    return [*history.events, _event(history, EventType.CLAIMED, Status.CLAIMED, attempt=2, actor=WORKER, policy=Policy())]


def _after_the_end() -> list[EventRecord]:
    history = _running()
    return [*history.events, _event(history, EventType.HEARTBEAT, Status.SUCCEEDED, actor=WORKER)]


def _asked() -> History:
    """Revs: 1 enqueued, 2 claimed, 3 started, 4 heartbeat with a request for assistance, 5 heartbeat without."""
    return History().start().beat(assist_requested=True).beat()


def _undo_step_of_an_undo_job() -> list[EventRecord]:
    history = History(kind="holdfast.undo").start().beat()
    return _mutated(history, 4, payload=payloads.BeatPayload(undo=STEP).encode())


def _uncompensated() -> list[EventRecord]:
    """The end of an undo job on a job of another kind."""
    end = History(Policy(attempts_max=1), kind="holdfast.undo").start().fail().events[-1]
    return [*History(Policy(attempts_max=1)).start().events, end]


def _waiting() -> History:
    """Revs: 1 enqueued with two dependencies and a delay of 5 s, 2 unblocked."""
    return History(depends_on=(3, 4), delay_us=5 * SECOND).wait(1).do(c.Unblock, actor=SYSTEM)


def _claimed_while_waiting() -> list[EventRecord]:
    history = History(depends_on=(3,))
    return [*history.events, _event(history, EventType.CLAIMED, Status.CLAIMED, attempt=1, actor=WORKER, policy=Policy())]


def _unblocked(history: History, available_at: int) -> list[EventRecord]:
    body = payloads.UnblockedPayload(available_at=available_at).encode()
    return [*history.events, _event(history, EventType.UNBLOCKED, Status.QUEUED, payload=body)]


MUTATIONS: dict[str, tuple[Callable[[], list[EventRecord]], list[tuple[int, str]]]] = {
    "no enqueued first": (lambda: _running().events[1:], [(2, "first event"), (2, "rev")]),
    "another type first": (lambda: _mutated(_running(), 1, type=EventType.CLAIMED, payload=None), [(1, "first event")]),
    "the first rev is not 1": (lambda: _mutated(History(), 1, rev=2), [(2, "rev")]),
    "the first event of an attempt": (lambda: _mutated(History(), 1, attempt=3), [(1, "attempt")]),
    "the first event from a status": (lambda: _mutated(History(), 1, from_status=Status.QUEUED), [(1, "step")]),
    "the first event to another status": (lambda: _mutated(History(), 1, to_status=Status.RUNNING), [(1, "step")]),
    "another job's event": (lambda: _mutated(_running(), 3, job_id=8), [(3, "one job")]),
    "a gap": (lambda: [e for e in _running().events if e.rev != 4], [(5, "rev")]),
    "a repeated rev": (lambda: _mutated(_running(), 4, rev=3), [(3, "rev"), (5, "rev")]),
    "another from_status": (lambda: _mutated(_running(), 5, from_status=Status.CLAIMED), [(5, "step")]),
    "another to_status": (lambda: _mutated(_running(), 5, to_status=Status.QUEUED), [(5, "step")]),
    "a step that no role may take": (
        lambda: _mutated(_running(), 3, type=EventType.CANCELLED, to_status=Status.SUCCEEDED),
        [(3, "step")],
    ),
    "a second enqueued": (
        lambda: _mutated(_running(), 2, type=EventType.ENQUEUED),
        [(2, "payload"), (2, "policy snapshot"), (2, "step")],
    ),
    "time runs backwards": (lambda: _mutated(_running(), 4, received_at=0), [(4, "time"), (5, "late holder")]),
    "a payload where none belongs": (lambda: _mutated(_running(), 3, payload=b"{}"), [(3, "payload")]),
    "an unreadable payload": (lambda: _mutated(_running(), 4, payload=b"{"), [(4, "payload")]),
    "a payload of another shape": (lambda: _mutated(_running(), 5, payload=b'{"x":1}'), [(5, "payload")]),
    "a policy where none belongs": (lambda: _mutated(_running(), 3, policy=Policy()), [(3, "policy snapshot")]),
    "a reason where none belongs": (lambda: _mutated(_running(), 3, reason="because"), [(3, "reason")]),
    "a beat with a reason of its own": (lambda: _mutated(_running(), 4, reason="because"), [(4, "reason")]),
    "an assistance mark without a request": (lambda: _mutated(_running(), 4, reason="ASSIST_REQUESTED"), [(4, "reason")]),
    "a wish that was there before": (
        lambda: _mutated(_asked(), 5, reason="ASSIST_REQUESTED", payload=payloads.BeatPayload(assist_requested=True).encode()),
        [(5, "reason")],
    ),
    "a wish without its mark": (lambda: _mutated(_asked(), 4, reason=None), [(4, "reason")]),
    "an undo job with undo steps": (_undo_step_of_an_undo_job, [(4, "undo")]),
    "a compensation that failed where there was none": (_uncompensated, [(4, "undo")]),
    "assistance that ends before it began": (
        lambda: _mutated(History().start().do(c.Assist, actor=OPERATOR, on=True), 4, type=EventType.ASSIST_ENDED),
        [(4, "phase")],
    ),
    "another trace": (lambda: _mutated(_running(), 3, trace_id="other"), [(3, "correlation")]),
    "a stall that tells of another beat": (
        lambda: _restalled(last_beat_at=1),
        [(4, "record")],
    ),
    "a stall that names another holder": (lambda: _restalled(holder="w-2"), [(4, "record")]),
    "a stall that names another incarnation": (lambda: _restalled(incarnation="boot-2"), [(4, "record")]),
    "a stall without a holder": (lambda: _restalled(holder=None), [(4, "payload")]),
    "a stall without an incarnation": (lambda: _restalled(incarnation=None), [(4, "payload")]),
    "a stall without the time of its detection": (lambda: _restalled(detected_at=None), [(4, "payload")]),
    "a stall whose error has no stage": (_stalled_without_stage, [(4, "record")]),
    "a failure that does not say which kind it is": (
        lambda: _mutated(History().start().fail(retryable=False), 4, payload=b'{"error":{},"failure_stage":"exec"}'),
        [(4, "payload")],
    ),
    "a failure without a stage": (
        lambda: _mutated(History().start().fail(retryable=False), 4, payload=b'{"error":{},"failure":"permanent"}'),
        [(4, "payload")],
    ),
    "a release that only its reason tells": (_released_by_reason, [(5, "attempts_max"), (6, "attempts_max")]),
    "a stall that was found at another time": (lambda: _restalled(detected_at=1), [(4, "record")]),
    "silence by another name": (lambda: _mutated(_stalled(), 4, reason="LEASE_EXPIRED"), [(4, "reason")]),
    "a dead letter that tells of another reason": (
        lambda: _mutated(History().start().fail(retryable=False, reason_code=ReasonCode.TIMEOUT), 4, reason="parse_error"),
        [(4, "record")],
    ),
    "a failure for another reason than it says": (
        lambda: _mutated(History(ONCE_FAIL).start().fail(), 4, reason="timeout"),
        [(4, "reason")],
    ),
    "exhausted with attempts left": (
        lambda: _refailed(History().start(), failure="exhausted", reason_code="exhausted_retries"),
        [(4, "record")],
    ),
    "permanent, recorded by the system": (
        lambda: _mutated(History(ONCE_FAIL).start().fail(retryable=False), 4, actor=SYSTEM),
        [(4, "record")],
    ),
    "a reason of a job that repeats no other": (lambda: _mutated(_running(), 1, reason="because"), [(1, "reason")]),
    "an attempt too many": (lambda: _mutated(_running(), 3, attempt=2), [(3, "attempt")]),
    "a claim without a new attempt": (lambda: _mutated(History().claim(), 2, attempt=0), [(2, "attempt"), (2, "status fields")]),
    "a role that may not": (lambda: _mutated(_running(), 5, actor=CLIENT), [(5, "role")]),
    "another correlation": (lambda: _mutated(_running(), 3, correlation_id="other"), [(3, "correlation")]),
    "a claim without policy": (lambda: _mutated(_running(), 2, policy=None), [(2, "policy")]),
    "a stall under another policy": (lambda: _mutated(_stalled(), 4, policy=Policy()), [(4, "policy snapshot")]),
    "a beat under the policy of its lease": (lambda: _mutated(_running(), 4, policy=Policy()), [(4, "policy snapshot")]),
    "a beat that changes more than the length of its lease": (
        lambda: _mutated(_running(), 4, policy=Policy(lease_ttl_ms=90_000, attempts_max=9)),
        [(4, "policy snapshot")],
    ),
    "a beat that renews no lease": (
        lambda: _mutated(History(WINDOW).start().stall().beat(), 5, policy=replace(WINDOW, lease_ttl_ms=90_000)),
        [(5, "policy snapshot")],
    ),
    "a stall without policy": (lambda: _mutated(_stalled(), 4, policy=None), [(4, "policy snapshot")]),
    "another worker": (lambda: _mutated(_running(), 4, actor=Actor(Role.WORKER, "w-2", "boot-1")), [(4, "holder")]),
    "another incarnation": (lambda: _mutated(_running(), 4, actor=Actor(Role.WORKER, "w-1", "boot-2")), [(4, "holder")]),
    "a stalled job's beat by another": (
        lambda: _mutated(_stalled(), 5, actor=Actor(Role.WORKER, "w-2", "boot-1")),
        [(5, "holder")],
    ),
    "stalled at the limit": (lambda: _stalled_at(30), [(4, "stalled too early")]),
    "stalled before the limit": (lambda: _stalled_at(1), [(4, "stalled too early")]),
    "no progress without a limit": (lambda: _mutated(_stalled(), 4, reason="NO_PROGRESS"), [(4, "stalled too early")]),
    "resumed without a beat": (_without_beat, [(5, "resumed without a beat")]),
    "requeued while aborting": (_requeued_while_aborting, [(6, "requeued while aborting")]),
    "requeued by its holder while aborting": (_requeued_by_its_holder_while_aborting, [(6, "requeued while aborting")]),
    "requeued with no attempts left": (_requeued_exhausted, [(5, "attempts_max")]),
    "claimed with no attempts left": (_claimed_exhausted, [(5, "attempts_max")]),
    "unblocked without a dependency": (lambda: _unblocked(History(), T0), [(2, "waiting")]),
    "unblocked twice": (lambda: _unblocked(_waiting(), T0 + 5 * SECOND), [(3, "waiting")]),
    "unblocked for another time": (lambda: _unblocked(History(depends_on=(3,)).wait(1), T0), [(2, "record")]),
    "unblocked by a client": (lambda: _mutated(_waiting(), 2, actor=CLIENT), [(2, "role")]),
    "unblocked for a reason": (lambda: _mutated(_waiting(), 2, reason="because"), [(2, "reason")]),
    "claimed while it waits": (_claimed_while_waiting, [(2, "claimed too early"), (2, "status fields")]),
    "an event after the end": (_after_the_end, [(6, "step")]),
}


@pytest.mark.parametrize(("make", "expected"), MUTATIONS.values(), ids=MUTATIONS)
def test_each_violation_is_found_with_its_place(make: Callable[[], list[EventRecord]], expected: list[tuple[int, str]]):
    assert _rules(check_history(make())) == expected


def test_a_violation_has_a_message():
    [found] = check_history(_mutated(_running(), 5, from_status=Status.CLAIMED))
    assert found == Violation(7, 5, "step", "it goes from claimed to succeeded, but the job was running")


def test_a_valid_history_has_no_violations():
    history = rich()
    assert check_history(history.events, history.job) == []


def test_a_stall_for_lack_of_progress_past_its_limit_is_valid():
    history = History(replace(WINDOW, progress_timeout_ms=20_000)).start().wait(15).beat().wait(6).sweep()
    assert (history.job.stall_reason, check_history(history.events, history.job)) == ("NO_PROGRESS", [])


@pytest.mark.parametrize("rev", [4, 5], ids=["heartbeat", "succeeded"])
def test_a_verb_after_the_leases_end_without_stall_and_return_is_noticed(rev: int):
    history = _running()
    events = [replace(event, received_at=event.received_at + 100 * SECOND * (event.rev >= rev)) for event in history.events]
    assert check_history(events) != []


def test_a_claim_before_the_job_was_available_is_noticed():
    history = History(delay_us=5 * SECOND)
    claimed = _event(history, EventType.CLAIMED, Status.CLAIMED, attempt=1, actor=WORKER, policy=Policy())
    assert check_history([*history.events, claimed]) != []


# The row


CHANGED: dict[str, Any] = {
    "queue": "other", "kind": "other", "rev": 99, "attempt": 9, "priority": 9, "available_at": 9, "created_at": 9,
    "updated_at": 9,
    "args": b"{}", "correlation_id": "other", "phase": Phase.ASSISTED, "releases": 9, "owner": "w-9", "incarnation": "boot-9",
    "claimed_at": 9, "lease_expires_at": 9, "last_beat_at": 9, "started_at": 9, "finished_at": 9, "stage": "Z", "progress": 9,
    "progressed_at": 9, "assist_requested": True, "counter": 9, "last_owner": "w-9", "last_lease_expires_at": 9,
    "last_error": b"{}",
    "stall_reason": "RELEASED", "stalled_at": 9, "revived_at": 9, "cancel_reason": "other", "cancel_requested_at": 9,
    "reason_code": "timeout", "failure_stage": "exec", "result": b"9", "checkpoint": b"9", "undo_owed": 9, "note": "discarded",
    "dedupe_key": "other",
    "dedupe_forever": True, "tier": "other", "trace_id": "other", "replay_of": 9, "override": b"{}", "policy": WINDOW,
    "id": 9, "status": Status.FAILED,
    "depends_on": (9,), "on_dependency_failure": "cancel", "wanted_at": 9, "dedupe_until": 9, "waits_for": (9,),
    "group": "import", "flow": Flow(partition="p"),
}  # fmt: skip


def test_every_field_but_the_token_is_compared():
    assert CHANGED.keys() == set(JobRecord.__struct_fields__) - {"token"}


@pytest.mark.parametrize("field", CHANGED)
def test_a_row_that_differs_in_one_field_is_found(field: str):
    history = _running()
    row = replace(history.job, **{field: CHANGED[field]})
    [found] = check_history(history.events, row)
    assert (found.rule, found.detail.split()[0]) == ("fold", field)


def test_a_row_may_wait_for_other_jobs_than_its_history_but_not_for_none():
    history = History(depends_on=(3, 4))
    assert check_history(history.events, replace(history.job, waits_for=(9,))) == []
    assert _rules(check_history(history.events, replace(history.job, waits_for=()))) == [(1, "fold")]


def test_an_unblocked_job_is_available_at_its_requested_time():
    history = _waiting()
    assert (history.job.available_at, history.job.waits_for) == (T0 + 5 * SECOND, ())
    assert check_history(history.events, history.job) == []


def test_a_row_without_events_is_found():
    assert check_history([], History().job) == [Violation(7, 1, "fold", "a row without events")]


def test_a_request_for_assistance_outlives_its_heartbeat():
    history = _asked()
    beat = payloads.BeatPayload(pruned="0" * 64).encode()
    assert check_history(_mutated(history, 4, payload=beat)) == []
    later = _mutated(_asked(), 5, reason="ASSIST_REQUESTED", payload=payloads.BeatPayload(assist_requested=True).encode())
    assert check_history([replace(event, payload=beat) if event.rev == 4 else event for event in later]) == []


@pytest.mark.parametrize("body", [b'{"pruned":"not a hash"}', b'{"progress":2,"pruned":"%s"}' % (b"0" * 64)])
def test_a_pruned_beat_has_a_hash_and_nothing_else(body: bytes):
    assert _rules(check_history(_mutated(_running(), 4, payload=body))) == [(4, "payload")]


@pytest.mark.parametrize("reason", ["BECAUSE", None])
def test_a_stall_must_have_a_known_reason(reason: str | None):
    assert (4, "reason") in _rules(check_history(_mutated(_stalled(), 4, reason=reason)))


def test_pruned_beats_explain_only_differences_in_fields_of_beats():
    history = _running()
    beat = payloads.BeatPayload(pruned="0" * 64).encode()
    events = _mutated(history, 4, payload=beat)
    assert check_history(events, history.job) == []
    assert check_history(events, replace(history.job, progress=9)) == []
    assert len(check_history(events, replace(history.job, attempt=9))) == 1


# Fields of a status

WAITS = "a job waits for others until it is available, no other does"
BROKEN: dict[str, tuple[History, dict[str, Any], str]] = {
    "held without lease": (History().claim(), {"lease_expires_at": None}, "a held job has an owner and a lease"),
    "queued with owner": (History(), {"owner": "w", "lease_expires_at": 1}, "a held job has an owner and a lease"),
    "owner without lease": (History(), {"owner": "w"}, "owner and lease come and go together"),
    "result while running": (History().start(), {"result": b"1"}, "only a succeeded job has a result"),
    "succeeded without result": (History().start().complete(), {"result": None}, "only a succeeded job has a result"),
    "running without phase": (History().start(), {"phase": None}, "a running or stalled job has a phase, no other"),
    "queued with phase": (History(), {"phase": Phase.EXECUTING}, "a running or stalled job has a phase, no other"),
    "stalled for no reason": (
        History(WINDOW).start().stall(),
        {"stall_reason": None},
        "a stalled job has a reason and a last owner",
    ),
    "stalled without a last owner": (
        History(WINDOW).start().stall(),
        {"last_owner": None},
        "a stalled job has a reason and a last owner",
    ),
    "finished at no time": (History().cancel(), {"finished_at": None}, "a finished job has its time, no other"),
    "live but finished": (History(), {"finished_at": 1}, "a finished job has its time, no other"),
    "failed without error": (History().start().fail(retryable=False), {"last_error": None}, "a failed job has its error"),
    "cancelled for no reason": (History().cancel(), {"cancel_reason": None}, "a cancelled job has its reason"),
    "dead without reason": (
        History().do(c.DeadLetter, actor=OPERATOR, reason_code=ReasonCode.TIMEOUT, failure_stage=FailureStage.EXEC),
        {"reason_code": None},
        "a dead-lettered job has reason and stage",
    ),
    "dead without stage": (
        History().do(c.DeadLetter, actor=OPERATOR, reason_code=ReasonCode.TIMEOUT, failure_stage=FailureStage.EXEC),
        {"failure_stage": None},
        "a dead-lettered job has reason and stage",
    ),
    "live with a reason": (
        History(),
        {"reason_code": "timeout", "failure_stage": "exec"},
        "a stage is that of an error or of a dead letter",
    ),
    "held with the stage of a failure": (
        History().start().fail().wait(60).start(),
        {"failure_stage": "exec"},
        "a job that is held or has succeeded has no stage",
    ),
    "a reason without a stage": (
        History().start().fail(reason_code=ReasonCode.TIMEOUT),
        {"failure_stage": None},
        "a reason has its stage",
    ),
    "claimed at attempt 0": (History().claim(), {"attempt": 0}, "a claimed job was attempted and has its policy"),
    "claimed without policy": (History().claim(), {"policy": None}, "a claimed job was attempted and has its policy"),
    "succeeded with steps to undo": (History().start().complete(), {"undo_owed": 1}, "a succeeded job has no undo steps left"),
    "waiting for no job": (History(depends_on=(3,)), {"waits_for": ()}, WAITS),
    "waiting while it is available": (History(), {"waits_for": (3,)}, WAITS),
    "more releases than attempts": (History(), {"releases": 1}, "releases are attempts"),
    "fewer releases than none": (History(), {"releases": -1}, "releases are attempts"),
}


@pytest.mark.parametrize(("history", "changes", "rule"), BROKEN.values(), ids=BROKEN)
def test_each_status_requires_its_fields(history: History, changes: dict[str, Any], rule: str):
    assert check_status(history.job) == []
    assert rule in check_status(replace(history.job, **changes))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("owner", None, "owner in its row is nothing, its events say "),
        ("updated_at", 0, "updated_at in its row is 1970-01-01T00:00:00.000000Z, its events say 2"),
        ("updated_at", 10**18, "updated_at in its row is 1000000000000000000, its events say 2"),
        ("args", b'{"n":2}', 'args in its row is {"n":2}, its events say {"n":1}'),
        ("args", b"\xff", 'args in its row is another content, its events say {"n":1}'),
        ("waits_for", (3, 4), "waits_for in its row is 3, 4, its events say that it does not wait"),
    ],
)
def test_a_row_that_differs_is_reported_in_plain_words(field: str, value: object, words: str):
    history = _running()
    history = history if field != "owner" else History().claim()
    [found] = check_history(history.events, replace(history.job, **{field: value}))
    assert found.detail.startswith(words)


def test_a_row_that_waits_for_no_job_is_reported_in_plain_words():
    history = History(depends_on=(3, 4))
    [found] = check_history(history.events, replace(history.job, waits_for=()))
    assert found.detail == "waits_for in its row is nothing, its events say that it waits"
