"""Rule 6: a request id makes a repetition safe."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    FINISHED,
    ON_A_JOB,
    Made,
    queued,
    refused_without_trace,
    running,
    trace,
)

Call = Callable[..., Any]
Case = tuple[Callable[..., Made], Call, Call]
"""A job, the request, and a request of the same verb with another body."""

OTHERS: dict[str, dict[str, Any]] = {
    "claim_job": {"ttl": 30},
    "start": {"expected_rev": 2},
    "heartbeat, full": {"stage": "LATER"},
    "fail": {"retryable": False},
    "release": {"expected_rev": 3},
    "acknowledge_cancel": {"expected_rev": 4},
    "stall": {"reason": "NO_PROGRESS"},
    "resume": {"expected_rev": 4},
    "requeue": {"expected_rev": 4},
    "assist": {"expected_rev": 3},
    "unassist": {"expected_rev": 4},
    "cancel": {"expected_rev": 3},
    "dead_letter": {"failure_stage": "fetch"},
    "replay": {"expected_rev": 4},
    "discard": {"reason": "seen"},
}
"""An option that makes another request of a verb on a job."""


def _on_a_job(name: str) -> Case:
    build, call = ON_A_JOB[name]
    return build, call, functools.partial(call, **OTHERS[name])


CASES: dict[str, Case] = {
    "enqueue": (
        queued,
        lambda ledger, made, **extra: ledger.enqueue("a", {"n": 1}, **extra),
        lambda ledger, made, **extra: ledger.enqueue("a", {"n": 2}, **extra),
    ),
    "enqueue_many": (
        queued,
        lambda ledger, made, **extra: ledger.enqueue_many([{"kind": "a"}, {"kind": "b"}], **extra),
        lambda ledger, made, **extra: ledger.enqueue_many([{"kind": "b"}, {"kind": "a"}], **extra),
    ),
    "complete": (
        running,
        lambda ledger, made, **extra: ledger.complete(made.fence, 1, **extra),
        lambda ledger, made, **extra: ledger.complete(made.fence, 2, **extra),
    ),
} | {name: _on_a_job(name) for name in OTHERS}
every_case = pytest.mark.parametrize(("build", "call", "other"), CASES.values(), ids=CASES)
AS_CLIENT = [name for name in CASES if name in ("enqueue", "enqueue_many", "cancel", "dead_letter", "replay", "discard")]


def _shape(answer: Any) -> Any:
    """An answer with everything that a caller can read in it."""
    if isinstance(answer, list):
        return [_shape(item) for item in answer]
    record = getattr(answer, "record", None)
    return answer if record is None else (record.rev, record.status, record.attempt, record.updated_at, answer.id, answer.is_new)


@every_case
def test_a_repeated_request_has_the_same_answer_and_changes_nothing(
    ledger: Ledger, clock: ManualClock, build: Callable[..., Made], call: Call, other: Call
):
    made = build(ledger)
    first = call(ledger, made, request_id="r-1")
    before = trace(ledger)
    clock.advance(1)
    assert _shape(call(ledger, made, request_id="r-1")) == _shape(first)
    assert trace(ledger) == before
    with refused_without_trace(ledger, "idempotency_conflict"):
        other(ledger, made, request_id="r-1")
    if ledger.get(made.id).status not in FINISHED:
        ledger.cancel(made.id, hard=True)
    before = trace(ledger)
    assert _shape(call(ledger, made, request_id="r-1")) == _shape(first), "also after the job has moved on"
    assert trace(ledger) == before


def test_another_job_is_a_conflict(ledger: Ledger):
    for name in ("complete", *OTHERS):
        build, call, _ = CASES[name]
        first, second = build(ledger), build(ledger)
        call(ledger, first, request_id=name)
        with refused_without_trace(ledger, "idempotency_conflict"):
            call(ledger, second, request_id=name)


def test_another_verb_is_a_conflict(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence, request_id="r-1")
    with refused_without_trace(ledger, "idempotency_conflict"):
        ledger.complete(made.fence, request_id="r-1")


def test_two_actors_may_use_one_id(ledger: Ledger):
    for name in AS_CLIENT:
        build, call, _ = CASES[name]
        call(ledger, build(ledger), request_id=name, actor="ann")
        second = build(ledger)
        before = len(ledger.events())
        call(ledger, second, request_id=name, actor="bob")
        assert len(ledger.events()) > before


def test_two_workers_may_use_one_id(ledger: Ledger):
    queued(ledger, queue="a")
    queued(ledger, queue="a")
    [first] = ledger.claim("w-1", ["a"], request_id="r-1")
    [second] = ledger.claim("w-2", ["a"], request_id="r-1")
    assert first.id != second.id


def test_every_option_of_an_enqueue_is_part_of_its_body(ledger: Ledger):
    ledger.enqueue("a", {"n": 1}, request_id="r-1")
    others: list[dict[str, Any]] = [
        {"correlation_id": "c-2"}, {"trace_id": "t-2"}, {"priority": 2}, {"delay": 2}, {"tier": "x"}, {"queue": "b"},
    ]  # fmt: skip
    for other in others:
        with refused_without_trace(ledger, "idempotency_conflict"):
            ledger.enqueue("a", {"n": 1}, request_id="r-1", **other)


def test_a_request_id_is_drawn_if_the_caller_gives_none(ledger: Ledger):
    for name in {"complete", *OTHERS} - {"heartbeat, full"}:
        build, call, _ = CASES[name]
        call(ledger, build(ledger))
        assert ledger.events()[-1].request_id is not None
