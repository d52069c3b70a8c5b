"""Each verb from each status: allowed where the contract says so, invalid_transition anywhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.model import SYSTEM, EventType, FailureStage, Policy, ReasonCode
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


@pytest.mark.parametrize(("verb", "status"), CELLS, ids=[f"{verb} from {status}" for verb, status in CELLS])
def test_a_verb_from_a_status(verb: str, status: str):
    kind, fields, allowed = VERBS[verb]
    history = STATUSES[status]()
    if status in allowed:
        history.do(kind, **fields)
        assert check_history(history.events, history.job) == []
    else:
        assert code_of(history, kind, **fields) == _refusal(verb, status)


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_a_finished_job_is_not_claimed(status: str):
    given: dict[str, Any] = {"token": "t", "policy": Policy()}
    assert code_of(STATUSES[status](), c.ClaimJob, actor=WORKER, **given) == "invalid_transition"


def test_a_failure_without_attempts_left_is_the_end():
    history = History(Policy(attempts_max=1)).start().fail(failure_stage=FailureStage.FETCH)
    assert (history.job.status, history.job.reason_code, history.job.failure_stage) == (
        "dead_lettered",
        "exhausted_retries",
        "fetch",
    )


def test_a_requeue_without_attempts_left_is_the_end():
    assert History(Policy(attempts_max=1)).start().stall().do(c.Requeue, actor=SYSTEM).job.status == "dead_lettered"


def test_a_resume_by_the_system_needs_a_beat_of_a_started_attempt():
    assert History(WINDOW).start().stall().beat().do(c.Resume, actor=SYSTEM).job.status == "running"
    assert code_of(History(WINDOW).claim().stall().beat(), c.Resume, actor=SYSTEM) == "invalid_transition"
