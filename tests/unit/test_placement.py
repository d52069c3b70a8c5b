"""A queued job is put into another queue, given another priority, or another time."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.model import SYSTEM, UNDO_KIND, EventRecord, EventType, Flow, Status
from holdfast.core.windows import changed_payload
from tests.unit.histories import CLIENT, OPERATOR, SECOND, T0, History, code_of


def test_each_change_is_an_event_and_folds_to_the_row():
    history = History().wait(1)
    history.do(c.MoveJob, actor=CLIENT, queue="fetch", reason="wrong queue")
    history.do(c.Reprioritise, actor=OPERATOR, priority=9).do(c.Reschedule, actor=CLIENT, available_at=T0 + 60 * SECOND)
    assert (history.job.queue, history.job.priority, history.job.available_at) == ("fetch", 9, T0 + 60 * SECOND)
    assert history.types == ["enqueued", "moved", "reprioritised", "rescheduled"]
    assert history.events[1].reason == "wrong queue"
    assert check_history(history.events, history.job) == []
    claim = {"token": "t", "policy": history.policy}
    assert code_of(history, c.ClaimJob, **claim) == "not_claimable"
    assert check_history(history.wait(60).start().complete().events, history.job) == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(c.MoveJob, {"queue": "q"}), (c.Reprioritise, {"priority": 0}), (c.Reschedule, {"available_at": T0})],
)
def test_values_that_a_job_already_has_are_no_change(kind: type[c.JobCommand], fields: dict[str, object]):
    assert History().do(kind, actor=CLIENT, **fields).types == ["enqueued"]


def test_a_job_gets_another_worker_or_any():
    history = History(flow=Flow(partition="p", requires=("worker:gone", "gpu")))
    history.do(c.MoveJob, actor=OPERATOR, for_worker="w")
    assert history.job.flow == Flow(partition="p", requires=("worker:w", "gpu"))
    history.do(c.MoveJob, actor=OPERATOR, for_worker="w").do(c.MoveJob, actor=OPERATOR, queue="other")
    assert (history.job.flow, history.job.queue) == (Flow(partition="p", requires=("worker:w", "gpu")), "other")
    history.do(c.MoveJob, actor=OPERATOR, for_worker="")
    assert history.job.flow == Flow(partition="p", requires=("gpu",))
    assert history.types == ["enqueued", "moved", "moved", "moved"]
    assert check_history(history.events, history.job) == []
    payload = changed_payload(history.events[0].payload or b"", tuple(history.events))
    assert payload is not None
    assert payloads.decode(payloads.EnqueuedPayload, payload).flow == history.job.flow
    assert changed_payload(history.events[0].payload or b"", (history.events[0], history.events[2])) is None


def test_a_job_without_flow_control_gets_a_worker_and_loses_it():
    history = History(kind=UNDO_KIND).do(c.MoveJob, actor=CLIENT, for_worker="w")
    assert history.job.flow == Flow(requires=("worker:w",))
    assert history.do(c.MoveJob, actor=CLIENT, for_worker="").job.flow is None
    assert history.do(c.MoveJob, actor=CLIENT, for_worker="").types == ["enqueued", "moved", "moved"]
    assert check_history(history.events, history.job) == []


def test_other_roles_are_refused():
    assert code_of(History(), c.MoveJob, actor=SYSTEM, queue="other") == "forbidden"


def test_a_job_that_undoes_another_one_stays_in_its_queue():
    assert code_of(History(kind=UNDO_KIND), c.MoveJob, actor=OPERATOR, queue="other") == "invalid_transition"


def test_a_dedupe_key_that_is_taken_there_is_a_conflict():
    assert code_of(History(dedupe_key="d"), c.MoveJob, actor=CLIENT, queue="other", key_holder=3) == "conflict"


def test_a_waiting_job_cannot_be_rescheduled():
    waiting = History(depends_on=(3,))
    assert code_of(waiting, c.Reschedule, actor=CLIENT) == "invalid_transition"
    waiting.do(c.MoveJob, actor=CLIENT, queue="other").do(c.Reprioritise, actor=CLIENT, priority=1)
    assert waiting.job.is_waiting
    assert check_history(waiting.events, waiting.job) == []


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


def test_the_payloads_name_both_sides():
    history = History().do(c.Reprioritise, actor=CLIENT, priority=2)
    assert msgspec.json.decode(history.events[-1].payload or b"") == {"priority": 2, "from_priority": 0}
