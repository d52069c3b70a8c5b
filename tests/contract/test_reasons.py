"""The event of a verb has the caller's reason."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import HoldfastError, Job, Ledger
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    Made,
    aborting,
    assisted,
    claimed_stalled,
    dead_lettered,
    failed,
    queued,
    refused_without_trace,
    running,
    running_stalled,
    types,
)

WHY, LONG = "the lobby is closed", "x" * 1_001
Verb = Callable[..., Any]


def _replay_many(ledger: Ledger, made: Any, **why: Any) -> Job:
    [answer] = ledger.on_jobs("replay", [made.id], **why)
    if isinstance(answer, HoldfastError):
        raise answer
    return answer


def _waited(ledger: Ledger) -> Made:
    waits = queued(ledger, depends_on=[queued(ledger).id])
    ledger.cancel(waits.id)
    return waits


VERBS: dict[str, tuple[Callable[..., Made], Verb, str]] = {
    "cancel": (queued, lambda ledger, made, **why: ledger.cancel(made.id, **why), "cancelled"),
    "cancel a running one": (running, lambda ledger, made, **why: ledger.cancel(made.id, **why), "cancel_requested"),
    "release": (running, lambda ledger, made, **why: ledger.release(made.fence, **why), "requeued"),
    "release a stalled claim": (claimed_stalled, lambda ledger, made, **why: ledger.release(made.fence, **why), "requeued"),
    "requeue": (running_stalled, lambda ledger, made, **why: ledger.requeue(made.id, **why), "requeued"),
    "assist": (running, lambda ledger, made, **why: ledger.assist(made.id, **why), "assist_started"),
    "unassist": (assisted, lambda ledger, made, **why: ledger.unassist(made.id, **why), "assist_ended"),
    "resume": (running_stalled, lambda ledger, made, **why: ledger.resume(made.fence, **why), "resumed"),
    "discard": (failed, lambda ledger, made, **why: ledger.discard(made.id, **why), "discarded"),
    "annotate": (failed, lambda ledger, made, **why: ledger.annotate(made.id, "compensated", **why), "compensated"),
    "replay": (failed, lambda ledger, made, **why: ledger.replay(made.id, **why), "enqueued"),
    "replay one with a key": (
        lambda ledger: failed(ledger, dedupe_key="k", policy=WINDOW),
        lambda ledger, made, **why: ledger.replay(made.id, **why),
        "enqueued",
    ),
    "replay one that waited": (
        _waited,
        lambda ledger, made, **why: ledger.replay(made.id, **why),
        "enqueued",
    ),
    "replay many": (dead_lettered, _replay_many, "enqueued"),
}


@pytest.mark.parametrize("name", VERBS)
def test_the_event_has_the_reason(ledger: Ledger, name: str):
    build, verb, kind = VERBS[name]
    made = build(ledger)
    for invalid in ("", 7, "a\0b", LONG):
        with refused_without_trace(ledger, "limit_exceeded" if invalid == LONG else "validation_error"):
            verb(ledger, made, reason=invalid)
    job = verb(ledger, made, reason=WHY, request_id="r-1")
    event = ledger.events(job.id)[-1]
    assert (event.type, event.reason) == (kind, WHY)
    with refused_without_trace(ledger, "idempotency_conflict"):
        verb(ledger, made, reason="something else", request_id="r-1")
    assert ledger.check(job.id) == []


def test_a_release_with_a_reason_is_counted_as_a_release(ledger: Ledger):
    made = running(ledger, policy={"attempts_max": 1})
    job = ledger.release(made.fence, reason=WHY)
    assert (job.status, job.attempt, job.releases) == ("queued", 1, 1)
    stalled, requeued = ledger.events(made.id)[-2:]
    assert (stalled.reason, requeued.payload["released"]) == ("RELEASED", True)
    assert ledger.claim_job(made.id, "w-2").attempt == 2
    assert ledger.check(made.id) == []


def test_a_release_without_a_reason_has_the_reason_released(ledger: Ledger):
    made = running(ledger)
    ledger.release(made.fence)
    assert [event.reason for event in ledger.events(made.id)[-2:]] == ["RELEASED", "RELEASED"]


def test_a_requeue_is_not_counted_as_a_release(ledger: Ledger):
    made = running_stalled(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.requeue(made.id, reason="RELEASED")
    assert ledger.requeue(made.id, reason="released").releases == 0


def test_a_resume_after_the_lease_keeps_its_reason(ledger: Ledger, clock: ManualClock):
    made = running(ledger, policy=WINDOW)
    clock.advance(100)
    ledger.resume(made.fence, reason=WHY)
    assert types(ledger, made.id)[-2:] == ["stalled", "resumed"]
    assert ledger.events(made.id)[-1].reason == WHY


@pytest.mark.parametrize("verb", ["acknowledge_cancel", "release"])
def test_the_holders_comment_is_kept_beside_the_reason_of_the_cancel(ledger: Ledger, verb: str):
    made = aborting(ledger)
    job = getattr(ledger, verb)(made.fence, reason=WHY)
    event = ledger.events(made.id)[-1]
    assert (event.type, event.reason, event.payload) == ("cancelled", "not needed", {"comment": WHY})
    assert job.cancel_reason == "not needed"
    assert ledger.check(made.id) == []


def test_an_agent_may_give_a_reason_for_a_release(ledger: Ledger, ada: Agent):
    made = queued(ledger)
    ada.start(made.id)
    ada.release(made.id, reason=WHY)
    assert ledger.events(made.id)[-1].reason == WHY
