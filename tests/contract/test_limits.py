"""Every limit: a value at the limit is accepted, one past it is refused and changes nothing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Fence, Ledger
from tests.contract.builders import WORKER, failed, queued, refused, refused_without_trace, running, trace

Put = Callable[[Ledger, Any], Any]

NAMES: dict[str, Put] = {
    "kind": lambda ledger, text: ledger.enqueue(text),
    "queue": lambda ledger, text: ledger.enqueue("a", queue=text),
    "tier": lambda ledger, text: ledger.enqueue("a", tier=text),
    "actor": lambda ledger, text: ledger.enqueue("a", actor=text),
    "worker": lambda ledger, text: ledger.claim(text),
    "incarnation": lambda ledger, text: ledger.claim(WORKER, incarnation=text),
    "claimed queue": lambda ledger, text: ledger.claim(WORKER, [text]),
    "claimed kind": lambda ledger, text: ledger.claim(WORKER, kinds=[text]),
    "paused queue": lambda ledger, text: ledger.pause(text),
    "policy's kind": lambda ledger, text: ledger.set_policy(text, attempts_max=2),
    "policy's tier": lambda ledger, text: ledger.set_policy(tier=text, attempts_max=2),
    "listed queue": lambda ledger, text: ledger.list(queue=text),
    "stage": lambda ledger, text: ledger.heartbeat(running(ledger).fence, stage=text),
}
KEYS: dict[str, Put] = {
    "request_id": lambda ledger, text: ledger.enqueue("a", request_id=text),
    "dedupe_key": lambda ledger, text: ledger.enqueue("a", dedupe_key=text),
    "correlation_id": lambda ledger, text: ledger.enqueue("a", correlation_id=text),
    "trace_id": lambda ledger, text: ledger.enqueue("a", trace_id=text),
    "listed correlation": lambda ledger, text: ledger.list(correlation_id=text),
}
REASONS: dict[str, Put] = {
    "cancel": lambda ledger, text: ledger.cancel(queued(ledger).id, reason=text),
    "discard": lambda ledger, text: ledger.discard(failed(ledger).id, reason=text),
}
TEXTS = (
    [(put, 200) for put in NAMES.values()] + [(put, 500) for put in KEYS.values()] + [(put, 1_000) for put in REASONS.values()]
)
every_text = pytest.mark.parametrize(("put", "most"), TEXTS, ids=[*NAMES, *KEYS, *(f"{verb} reason" for verb in REASONS)])


ODD_TEXTS: list[Any] = [
    "", " ", " x", "x ", "a\nb", "a\x00b", "a\x7fb", "é\x85", "a\u2028b", "a\u0378b", "\ud800", 7, True, b"x", ["x"],
]  # fmt: skip


@every_text
def test_a_text_is_printable_and_not_over_its_limit(ledger: Ledger, put: Put, most: int):
    for character in ("x", "é", "😀"):
        put(ledger, character * (most // len(character.encode())))
    for character in ("x", "é"):
        with refused("limit_exceeded") as caught:
            put(ledger, "x" + character * (most // len(character.encode())))
        assert caught.value.context["limit"] == most
    for text in ODD_TEXTS:
        with refused("validation_error"):
            put(ledger, text)


@pytest.mark.parametrize("name", ["kind", "queue", "tier", "actor"])
def test_a_refused_enqueue_changes_nothing(ledger: Ledger, name: str):
    with refused_without_trace(ledger, "limit_exceeded"):
        NAMES[name](ledger, "x" * 201)


# Numbers

NUMBERS: dict[str, tuple[Put, int, int]] = {
    "priority": (lambda ledger, value: ledger.enqueue("a", priority=value), -1_000, 1_000),
    "claim limit": (lambda ledger, value: ledger.claim(WORKER, limit=value), 1, 1_000),
    "list limit": (lambda ledger, value: ledger.list(limit=value), 1, 1_000),
    "events limit": (lambda ledger, value: ledger.events(limit=value), 1, 1_000),
    "sweep limit": (lambda ledger, value: ledger.sweep(limit=value), 1, 10_000),
    "list after": (lambda ledger, value: ledger.list(after=value), 0, 2**63 - 1),
    "events after": (lambda ledger, value: ledger.events(after=value), 0, 2**63 - 1),
    "progress": (lambda ledger, value: ledger.heartbeat(running(ledger).fence, progress=value), 0, 2**53 - 1),
}
every_number = pytest.mark.parametrize(("put", "low", "high"), NUMBERS.values(), ids=NUMBERS)


@every_number
def test_a_number_is_whole_and_within_its_limits(ledger: Ledger, put: Put, low: int, high: int):
    for value in (low, high):
        put(ledger, value)
    for value in (low - 1, high + 1):
        with refused("limit_exceeded"):
            put(ledger, value)
    for odd in (True, "1", 1.0, [1]):
        with refused("validation_error"):
            put(ledger, odd)


# Durations

DURATIONS: dict[str, tuple[Put, Any, Any, Any]] = {
    "ttl": (lambda ledger, value: ledger.claim_job(queued(ledger).id, WORKER, ttl=value), "1s", "1h", 3_600.001),
    "delay": (lambda ledger, value: ledger.enqueue("a", delay=value), 0, timedelta(days=3660), timedelta(days=3660.001)),
    "retry_after": (lambda ledger, value: ledger.fail(running(ledger).fence, "x", retry_after=value), 0, "3660d", "3661d"),
}
every_duration = pytest.mark.parametrize(("put", "low", "high", "past"), DURATIONS.values(), ids=DURATIONS)


@every_duration
def test_a_duration_at_its_limits_is_accepted(ledger: Ledger, put: Put, low: Any, high: Any, past: Any):
    put(ledger, low)
    put(ledger, high)


@every_duration
def test_a_duration_past_its_limits_is_refused(ledger: Ledger, put: Put, low: Any, high: Any, past: Any):
    for value in (-0.001, past, float("nan"), float("inf"), 10**400):
        with refused("limit_exceeded"):
            put(ledger, value)


@every_duration
def test_values_that_are_not_durations_are_refused(ledger: Ledger, put: Put, low: Any, high: Any, past: Any):
    for value in (True, "soon", "", "5", "5 s", "-5s", [5], b"5s"):
        with refused("validation_error"):
            put(ledger, value)


@pytest.mark.parametrize(
    "at", [datetime(1969, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC)], ids=["before", "after"]
)
def test_a_time_past_its_limits_is_refused(ledger: Ledger, at: datetime):
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.enqueue("a", available_at=at)


@pytest.mark.parametrize(
    "at", [datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)], ids=["first", "last"]
)
def test_a_time_at_its_limits_is_accepted(ledger: Ledger, at: datetime):
    assert ledger.enqueue("a", available_at=at).available_at == at


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1_767_225_600], ids=repr)  # noqa: DTZ001
def test_values_that_are_not_times_are_refused(ledger: Ledger, at: Any):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue("a", available_at=at)


# Batches


def test_the_largest_batch_of_jobs_is_accepted(ledger: Ledger):
    assert len(ledger.enqueue_many([{"kind": "a"}] * 10_000)) == 10_000


def test_one_job_more_is_refused(ledger: Ledger):
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.enqueue_many([{"kind": "a"}] * 10_001)


def test_an_empty_batch_has_no_effect(ledger: Ledger):
    assert (ledger.enqueue_many([]), ledger.complete_many([]), ledger.heartbeat_many([])) == ([], [], [])


def test_a_batch_is_all_or_none(ledger: Ledger):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue_many([{"kind": "a"}, {"kind": ""}])


def test_a_batch_larger_than_a_chunk_has_an_answer_for_each_item(ledger: Ledger):
    ledger.enqueue_many([{"kind": "a"}] * 1_001)
    jobs = ledger.claim(WORKER, limit=1_000, start=True) + ledger.claim(WORKER, limit=1_000, start=True)
    answers = ledger.complete_many([(job.fence, None) for job in jobs], request_id="r")
    assert ledger.counts() == {"default": {"succeeded": 1_001}}
    assert ledger.complete_many([(job.fence, None) for job in jobs], request_id="r") == answers


@pytest.mark.parametrize("verb", ["complete_many", "heartbeat_many"])
def test_too_many_writes_at_once_are_refused(ledger: Ledger, verb: str):
    fence = running(ledger).fence
    items = [(fence, None)] * 100_001 if verb == "complete_many" else [fence] * 100_001
    with refused_without_trace(ledger, "limit_exceeded"):
        getattr(ledger, verb)(items)


@pytest.mark.parametrize("what", ["queues", "kinds"])
def test_a_claim_names_at_most_a_hundred_queues(ledger: Ledger, what: str):
    assert ledger.claim(WORKER, **{what: [f"n-{number}" for number in range(1_000)]}) == []  # type: ignore[arg-type]
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.claim(WORKER, **{what: [f"n-{number}" for number in range(1_001)]})  # type: ignore[arg-type]


# Wrong types

WRONG: dict[str, Callable[[Ledger, Fence], Any]] = {
    "enqueue_many of a number": lambda ledger, fence: ledger.enqueue_many(7),  # type: ignore[arg-type]
    "enqueue_many of texts": lambda ledger, fence: ledger.enqueue_many(["a"]),  # type: ignore[list-item]
    "an item without kind": lambda ledger, fence: ledger.enqueue_many([{"queue": "a"}]),
    "an item with an actor": lambda ledger, fence: ledger.enqueue_many([{"kind": "a", "who": "b"}]),
    "an unknown option": lambda ledger, fence: ledger.enqueue("a", colour="blue"),  # type: ignore[call-arg]
    "an option of no name": lambda ledger, fence: ledger.enqueue_many([{"kind": "a", 7: 1}]),  # type: ignore[dict-item]
    "another dedupe": lambda ledger, fence: ledger.enqueue("a", dedupe_key="k", dedupe="often"),  # type: ignore[arg-type]
    "forever without key": lambda ledger, fence: ledger.enqueue("a", dedupe="forever"),
    "queues as a text": lambda ledger, fence: ledger.claim(WORKER, "default"),
    "no queue at all": lambda ledger, fence: ledger.claim(WORKER, []),
    "queues as a number": lambda ledger, fence: ledger.claim(WORKER, 7),  # type: ignore[arg-type]
    "no kind at all": lambda ledger, fence: ledger.claim(WORKER, kinds=[]),
    "start as a text": lambda ledger, fence: ledger.claim(WORKER, start="no"),  # type: ignore[arg-type]
    "hard as a text": lambda ledger, fence: ledger.cancel(fence.job_id, hard="no"),  # type: ignore[arg-type]
    "retryable as a text": lambda ledger, fence: ledger.fail(fence, "x", retryable="no"),  # type: ignore[arg-type]
    "assist_requested as a number": lambda ledger, fence: ledger.heartbeat(fence, assist_requested=1),  # type: ignore[arg-type]
    "an unknown stall reason": lambda ledger, fence: ledger.stall(fence, reason="TIRED"),
    "a stall reason of no text": lambda ledger, fence: ledger.stall(fence, reason=[]),  # type: ignore[arg-type]
    "complete_many of fences": lambda ledger, fence: ledger.complete_many([fence]),  # type: ignore[list-item]
    "complete_many of a number": lambda ledger, fence: ledger.complete_many(7),  # type: ignore[arg-type]
    "heartbeat_many of ids": lambda ledger, fence: ledger.heartbeat_many([fence.job_id]),  # type: ignore[list-item]
    "heartbeat_many of a number": lambda ledger, fence: ledger.heartbeat_many(7),  # type: ignore[arg-type]
    "a job as id": lambda ledger, fence: ledger.cancel(ledger.get(fence.job_id)),  # type: ignore[arg-type]
    "a text as id": lambda ledger, fence: ledger.cancel(str(fence.job_id)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_types_are_refused(ledger: Ledger, call: Callable[[Ledger, Fence], Any]):
    fence = running(ledger, queue="default").fence
    queued(ledger, queue="default")
    before = trace(ledger)
    with refused("validation_error"):
        call(ledger, fence)
    assert trace(ledger) == before
