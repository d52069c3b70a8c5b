"""What a call with the dedupe key of another job does: the end of a window, the audit, and texts."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.explain import JobFacts, Situation, explain
from holdfast.core.explain.formatting import to_datetime
from holdfast.core.explain.model import LinkedJob, Postponement, SeenWorker
from holdfast.core.formatting import describe_event
from holdfast.core.model import EventRecord, EventType, Status
from holdfast.core.windows import Outcome, changed_payload, outcome_of
from holdfast.watch.timeline.build import TimelineHistory, TimelineJob, TimelineView, build_timeline
from holdfast.watch.timeline.rows import TimelineEvent
from tests.unit.histories import CLIENT, SECOND, T0, History, code_of

NEW: dict[str, Any] = {"args": b'{"n":2}'}
LATER: dict[str, Any] = {**NEW, "delay_us": 10 * SECOND, "max_us": 30 * SECOND}


def keyed(**options: Any) -> History:
    return History(dedupe_key="d", **options)


# The audit


def _forged(history: History, kind: EventType, body: payloads.Payload) -> list[str]:
    last = history.events[-1]
    event = EventRecord(
        job_id=7,
        rev=last.rev + 1,
        type=kind,
        received_at=history.now,
        actor=CLIENT,
        attempt=history.job.attempt,
        from_status=Status.QUEUED,
        to_status=Status.QUEUED,
        payload=body.encode(),
        correlation_id=last.correlation_id,
    )
    return [violation.rule for violation in check_history([*history.events, event])]


REPLACED = payloads.ReplacedPayload(args=msgspec.Raw(b"{}"))


def _postponed(at: int, from_at: int, latest_at: int) -> payloads.PostponedPayload:
    return payloads.PostponedPayload(args=msgspec.Raw(b"{}"), available_at=at, from_at=from_at, latest_at=latest_at)


@pytest.mark.parametrize(
    ("history", "kind", "body"),
    [
        (History(), EventType.REPLACED, REPLACED),
        (keyed().start().fail(), EventType.REPLACED, REPLACED),
        (keyed(), EventType.POSTPONED, _postponed(T0 + 1, T0 + 5, T0 + 9)),
        (keyed(), EventType.POSTPONED, _postponed(T0 + 9, T0, T0 + 8)),
        (keyed(depends_on=(3,)), EventType.POSTPONED, _postponed(T0 + 1, T0 + 5, T0 + 9)),
    ],
)
def test_a_change_that_does_not_fit_the_job_is_found(history: History, kind: EventType, body: payloads.Payload):
    assert _forged(history, kind, body) == ["record"]


# Explanations, texts and the timeline


def _explained(history: History, **facts: Any) -> Any:
    given: dict[str, Any] = {
        "policy": history.policy,
        "since": T0,
        "workers": (SeenWorker("w", history.now),),
        "sweeper": "w",
    } | facts
    return explain(history.job, JobFacts(**given), history.now)


def test_a_job_at_its_maximum_cannot_be_postponed_further():
    history = keyed(delay_us=10 * SECOND).wait(9).do(c.Postpone, actor=CLIENT, **LATER | {"max_us": 15 * SECOND})
    found = _explained(history, postponed=Postponement(T0 + 9 * SECOND, T0 + 15 * SECOND, T0 + 15 * SECOND))
    assert "cannot postpone it further" in found.text


def test_a_postponed_job_that_was_rescheduled_is_scheduled():
    history = keyed(delay_us=10 * SECOND).wait(5).do(c.Postpone, actor=CLIENT, **LATER)
    history.do(c.Reschedule, actor=CLIENT, delay_us=60 * SECOND)
    found = _explained(history, postponed=Postponement(T0 + 5 * SECOND, T0 + 15 * SECOND, T0 + 30 * SECOND))
    assert found.situation is Situation.SCHEDULED


def test_a_waiting_job_names_the_postponement_besides():
    history = keyed(depends_on=(3,)).do(c.Postpone, actor=CLIENT, **LATER)
    unmet = (LinkedJob(3, Status.RUNNING, "default"),)
    found = _explained(history, unmet=unmet, postponed=Postponement(T0, T0 + 10 * SECOND, T0 + 30 * SECOND))
    assert found.situation is Situation.WAITS_FOR_DEPENDENCY
    assert "Besides: the last call with its dedupe key 'd'" in found.text


def test_the_events_have_words():
    assert "replaced its arguments" in describe_event("replaced", None, {"args": {}})[1]
    assert "delay anew" in describe_event("postponed", None, {"args": {}})[1]


def test_the_timeline_has_the_postponed_time():
    body = _postponed(T0 + 9 * SECOND, T0, T0 + 30 * SECOND).encode()
    events = [
        TimelineEvent(1, "enqueued", T0, "client:kim", 0, "queued", None, None, None),
        TimelineEvent(2, "postponed", T0 + 1, "client:kim", 0, "queued", None, None, body),
    ]
    job = TimelineJob(7, 2, Status.QUEUED, T0 + 9 * SECOND, ())
    found = build_timeline(job, TimelineHistory(events, [], {}), TimelineView(0, T0 * 2, 10), T0 + 2)
    assert found.waits[0].ready_at == to_datetime(T0 + 9 * SECOND)
    assert [mark.type for mark in found.marks] == ["enqueued", "postponed"]


def test_a_job_that_was_claimed_is_not_changed():
    for kind, fields in ((c.Replace, NEW), (c.Postpone, LATER)):
        assert code_of(keyed().start().fail(), kind, actor=CLIENT, **fields) == "invalid_transition"


def test_a_job_that_no_later_call_changed_has_the_payload_of_its_enqueue():
    assert changed_payload(keyed().events[0].payload or b"", tuple(keyed().events)) is None


def test_a_call_that_only_asks_for_a_job_keeps_it():
    call = c.Enqueue(actor=CLIENT, queue="q", kind="k", dedupe_key="d", payload=b"{}")
    assert outcome_of(keyed().job, call, T0) is Outcome.KEEP
