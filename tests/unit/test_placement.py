"""A queued job is put into another queue, given another priority, or another time."""

import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.model import SYSTEM, UNDO_KIND, EventRecord, EventType, Status
from tests.unit.histories import CLIENT, OPERATOR, T0, History, code_of


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(c.MoveJob, {"queue": "q"}), (c.Reprioritise, {"priority": 0}), (c.Reschedule, {"available_at": T0})],
)
def test_values_that_a_job_already_has_are_no_change(kind: type[c.JobCommand], fields: dict[str, object]):
    assert History().do(kind, actor=CLIENT, **fields).types == ["enqueued"]


def test_other_roles_are_refused():
    assert code_of(History(), c.MoveJob, actor=SYSTEM, queue="other") == "forbidden"


def test_a_job_that_undoes_another_one_stays_in_its_queue():
    assert code_of(History(kind=UNDO_KIND), c.MoveJob, actor=OPERATOR, queue="other") == "invalid_transition"


def _forged(history: History, kind: EventType, body: payloads.Payload) -> list[str]:
    """The rules that a history breaks with such a forged event."""
    last = history.events[-1]
    event = EventRecord(
        job_id=7,
        rev=last.rev + 1,
        type=kind,
        received_at=history.now,
        actor=CLIENT,
        attempt=0,
        from_status=Status.QUEUED,
        to_status=Status.QUEUED,
        payload=body.encode(),
        correlation_id=last.correlation_id,
    )
    return [violation.rule for violation in check_history([*history.events, event])]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EventType.MOVED, payloads.MovedPayload(queue="other", from_queue="elsewhere")),
        (EventType.MOVED, payloads.MovedPayload(queue="q", from_queue="q")),
        (EventType.MOVED, payloads.MovedPayload(queue="q", from_queue="q", for_worker="w", from_worker="v")),
        (EventType.MOVED, payloads.MovedPayload(queue="q", from_queue="q", for_worker="", from_worker="")),
        (EventType.MOVED, payloads.MovedPayload(queue="r", from_queue="q", from_worker="v")),
        (EventType.REPRIORITISED, payloads.ReprioritisedPayload(priority=3, from_priority=1)),
        (EventType.REPRIORITISED, payloads.ReprioritisedPayload(priority=0, from_priority=0)),
        (EventType.RESCHEDULED, payloads.RescheduledPayload(available_at=T0, from_at=T0)),
        (EventType.RESCHEDULED, payloads.RescheduledPayload(available_at=T0 + 2, from_at=T0 + 1)),
    ],
)
def test_a_change_that_does_not_fit_the_job_is_found(kind: EventType, body: payloads.Payload):
    assert _forged(History(), kind, body) == ["record"]


def test_a_waiting_job_that_was_rescheduled_is_found():
    assert "waiting" in _forged(
        History(depends_on=(3,)), EventType.RESCHEDULED, payloads.RescheduledPayload(available_at=T0, from_at=T0)
    )
