"""Each verb from each status: allowed if a row of the table allows it, and refused otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.model import SYSTEM, EventRecord, EventType, FailureStage, JobRecord, Policy, ReasonCode
from holdfast.core.table import TRANSITIONS, Transition
from tests.unit.histories import CLIENT, ERROR, OPERATOR, WINDOW, WORKER, History, code_of

STATUSES: dict[str, Callable[[], History]] = {
    "queued": History,
    "claimed": lambda: History(WINDOW).claim(),
    "running": lambda: History(WINDOW).start(),
    "aborting": lambda: History(WINDOW).start().cancel(),
    "assisted": lambda: History(WINDOW).start().do(c.Assist, actor=OPERATOR, on=True),
    "claimed_stalled": lambda: History(WINDOW).claim().stall(),
    "running_stalled": lambda: History(WINDOW).start().stall(),
    "aborting_stalled": lambda: History(WINDOW).start().cancel().stall(),
    "succeeded": lambda: History(WINDOW).start().complete(),
    "failed": lambda: History(WINDOW).start().fail(retryable=False),
    "cancelled": lambda: History(WINDOW).start().cancel().do(c.AcknowledgeCancel),
    "dead_lettered": lambda: History(WINDOW).start().fail(retryable=False, reason_code=ReasonCode.TIMEOUT),
}
RUNNING = {"running", "aborting", "assisted"}
HELD = RUNNING | {"claimed"}
BEGUN = RUNNING | {"running_stalled", "aborting_stalled"}
STALLED = {"claimed_stalled", "running_stalled", "aborting_stalled"}
LIVE = HELD | STALLED | {"queued"}
FINISHED = set(STATUSES) - LIVE

VERBS: dict[str, tuple[type[c.JobCommand], dict[str, Any], set[str]]] = {
    "start": (c.Start, {}, {"claimed", "claimed_stalled"}),
    "heartbeat": (c.Heartbeat, {"beat": payloads.NO_BEAT}, HELD | STALLED),
    "complete": (c.Complete, {"payload": b'{"result":1}'}, BEGUN),
    "fail": (c.Fail, {"error": ERROR}, BEGUN),
    "release": (c.Release, {}, HELD | STALLED),
    "acknowledge_cancel": (c.AcknowledgeCancel, {}, {"aborting", "aborting_stalled"}),
    "stall": (c.Stall, {}, HELD),
    "resume": (c.Resume, {}, STALLED),
    "resume by system": (c.Resume, {"actor": SYSTEM}, set()),
    "requeue": (c.Requeue, {"actor": SYSTEM}, {"claimed_stalled", "running_stalled"}),
    "assist": (c.Assist, {"actor": OPERATOR, "on": True}, {"running"}),
    "unassist": (c.Assist, {"actor": OPERATOR, "on": False}, {"assisted"}),
    "cancel": (c.Cancel, {"actor": CLIENT}, LIVE | {"cancelled"}),
    "cancel hard": (c.Cancel, {"actor": CLIENT, "hard": True}, LIVE | {"cancelled"}),
    "dead_letter": (
        c.DeadLetter,
        {"actor": OPERATOR, "reason_code": ReasonCode.TIMEOUT, "failure_stage": FailureStage.EXEC},
        LIVE,
    ),
    "move": (c.MoveJob, {"actor": CLIENT, "queue": "other"}, {"queued"}),
    "reprioritise": (c.Reprioritise, {"actor": OPERATOR, "priority": 5}, {"queued"}),
    "reschedule": (c.Reschedule, {"actor": CLIENT, "delay_us": 5_000_000}, {"queued"}),
    "annotate": (c.Annotate, {"actor": OPERATOR, "note": EventType.COMPENSATED}, FINISHED),
}
HOLDER_VERBS = {"start", "heartbeat", "complete", "fail", "release", "acknowledge_cancel", "stall", "resume"}
CELLS = [(verb, status) for verb in VERBS for status in STATUSES]


def _refusal(verb: str, status: str) -> str:
    return "fence_lost" if verb in HOLDER_VERBS and status == "queued" else "invalid_transition"


NO_OPS = {("cancel", "aborting"), ("cancel", "cancelled"), ("cancel hard", "cancelled")}
"""Accepted without an event."""
ROW_VERBS = {("start", "claimed_stalled"): "resume"} | {("cancel hard", status): "cancel" for status in LIVE - RUNNING}
"""Verbs that are described by the rows of another verb."""
OTHERS: dict[str, tuple[str, Callable[[], History], Callable[[History], History]]] = {
    "a claim": ("claim", History, lambda h: h.claim()),
    "a claim of a stalled job": ("claim by id", STATUSES["running_stalled"], lambda h: h.claim()),
    "a claim by the holder": ("claim by id", STATUSES["running"], lambda h: h.claim()),
    "a claim past the limit": ("claim by id", lambda: History(WINDOW).start().wait(3_600), lambda h: h.claim()),
    "a stall by the system": (
        "stall",
        lambda: History(WINDOW).start().wait(3_600),
        lambda h: h.do(c.Stall, actor=SYSTEM),
    ),
    "a resume by the system": (
        "resume",
        lambda: History(WINDOW).start().stall().beat(),
        lambda h: h.do(c.Resume, actor=SYSTEM),
    ),
    "an unblocked job": ("unblock", lambda: History(depends_on=(3,)), lambda h: h.do(c.Unblock, actor=SYSTEM)),
    "a replaced job": (
        "replace",
        lambda: History(dedupe_key="d"),
        lambda h: h.do(c.Replace, actor=CLIENT, args=b'{"n":2}'),
    ),
    "a postponed job": (
        "postpone",
        lambda: History(dedupe_key="d"),
        lambda h: h.do(c.Postpone, actor=CLIENT, args=b'{"n":2}', delay_us=5, max_us=9),
    ),
    "a permanent failure": ("fail", STATUSES["running"], lambda h: h.fail(retryable=False)),
    "a failure with a code": (
        "fail",
        STATUSES["running"],
        lambda h: h.fail(retryable=False, reason_code=ReasonCode.TIMEOUT),
    ),
    "the last failure": ("exhaust", lambda: History(Policy(attempts_max=1)).start(), lambda h: h.fail()),
    "the last requeue": (
        "exhaust",
        lambda: History(Policy(attempts_max=1)).start().stall(),
        lambda h: h.do(c.Requeue, actor=SYSTEM),
    ),
    "a late release while aborting": (
        "release",
        lambda: History(WINDOW).start().cancel().wait(3_600),
        lambda h: h.do(c.Release),
    ),
}


def _rows_of(verb: str, history: History, act: Callable[[History], Any]) -> tuple[list[Transition], list[EventRecord]]:
    """The rows that describe the verb, and its events."""
    count, job = len(history.events), history.job
    act(history)
    events = history.events[count:]
    return [row for row in TRANSITIONS if events and row.verb == verb and _describes(row, job, events)], events


def _rows_of_cell(verb: str, status: str, history: History) -> list[Transition]:
    kind, fields, _ = VERBS[verb]
    return _rows_of(ROW_VERBS.get((verb, status), verb), history, lambda found: found.do(kind, **fields))[0]


def _describes(row: Transition, job: JobRecord, events: list[EventRecord]) -> bool:
    """Whether a row describes the events. A late holder is stalled and resumed before its verb."""
    source = job.status
    if row.verb != "claim by id" and len(events) > 1 and events[0].type is EventType.STALLED and events[0].actor == SYSTEM:
        source, events = events[0].to_status, events[1:]
    if len(events) > 1 and events[0].type is EventType.RESUMED:
        source, events = events[0].to_status, events[1:]
    types, end = tuple(event.type for event in events), events[-1]
    is_written = types == row.events or (len(row.targets) != 1 and len(types) == 1 and types[0] in row.events)
    is_target = end.to_status in row.targets if row.targets else end.to_status is source
    return source in row.sources and is_target and is_written and end.actor.role in row.roles


@pytest.mark.parametrize(("verb", "before", "act"), OTHERS.values(), ids=OTHERS)
def test_every_decision_is_in_the_table(verb: str, before: Callable[[], History], act: Callable[[History], History]):
    history = before()
    rows, events = _rows_of(verb, history, act)
    assert len(rows) == 1, events
    assert check_history(history.events, history.job) == []


def test_every_row_of_the_table_happens():
    found: set[Transition] = set()
    for verb, status in CELLS:
        if status in VERBS[verb][2]:
            found.update(_rows_of_cell(verb, status, STATUSES[status]()))
    for verb, before, act in OTHERS.values():
        found.update(_rows_of(verb, before(), act)[0])
    assert found == set(TRANSITIONS)


@pytest.mark.parametrize("status", ["running", "aborting", "aborting_stalled"])
def test_a_release_ends_an_aborting_job(status: str):
    history = STATUSES[status]().do(c.Release)
    assert history.job.status == ("queued" if status == "running" else "cancelled")
    assert history.types[-2:] == ["stalled", "requeued" if status == "running" else "cancelled"]


@pytest.mark.parametrize(("verb", "status"), CELLS, ids=[f"{verb} from {status}" for verb, status in CELLS])
def test_a_verb_is_allowed_or_refused_from_a_status(verb: str, status: str):
    kind, fields, allowed = VERBS[verb]
    history = STATUSES[status]()
    if status in allowed:
        assert len(_rows_of_cell(verb, status, history)) == 1 or (verb, status) in NO_OPS
        assert check_history(history.events, history.job) == []
    else:
        assert code_of(history, kind, **fields) == _refusal(verb, status)


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_a_finished_job_is_not_claimed(status: str):
    given: dict[str, Any] = {"token": "t", "policy": Policy()}
    assert code_of(STATUSES[status](), c.ClaimJob, actor=WORKER, **given) == "invalid_transition"


def test_a_failure_without_attempts_left_ends_the_job():
    history = History(Policy(attempts_max=1)).start().fail(failure_stage=FailureStage.FETCH)
    assert (history.job.status, history.job.reason_code, history.job.failure_stage) == (
        "dead_lettered",
        "exhausted_retries",
        "fetch",
    )


def test_a_requeue_without_attempts_left_ends_the_job():
    assert History(Policy(attempts_max=1)).start().stall().do(c.Requeue, actor=SYSTEM).job.status == "dead_lettered"


def test_a_resume_by_the_system_needs_a_beat_of_a_started_attempt():
    assert History(WINDOW).start().stall().beat().do(c.Resume, actor=SYSTEM).job.status == "running"
    assert code_of(History(WINDOW).claim().stall().beat(), c.Resume, actor=SYSTEM) == "invalid_transition"
