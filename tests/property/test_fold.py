"""A job's events fold to its row in every history, and a change of one of them is noticed.

Some changes cannot be noticed, because the history has the value only once and the row does not have it: request_id,
cause, at, pos, version; the names of actors that are not workers, and of a worker whose attempt has no other event; a
caller's reason, the contents of a beat, or arguments, priority, tier and policy that were overwritten later; a time that is
still between its neighbours. All other changes are in `EDITS`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from holdfast.core import payloads
from holdfast.core.audit import check_history, fold
from holdfast.core.model import Actor, EventRecord, EventType, Fence, JobRecord, Policy, Role, Status
from holdfast.errors import HoldfastError
from tests.property.model import Draws, Model

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
E = EventType
_replace = msgspec.structs.replace


class Life(NamedTuple):
    """The history of one job."""

    events: list[EventRecord]
    row: JobRecord


Step = Callable[[Model, Fence], Any]

STEPS: dict[str, Step] = {
    "claim": lambda model, fence: model.claim_job(1, "w"),
    "claim for another": lambda model, fence: model.claim_job(1, "x", incarnation="boot", ttl=20),
    "claim and start": lambda model, fence: model.claim("w", limit=1, start=True),
    "start": lambda model, fence: model.start(fence),
    "beat": lambda model, fence: model.heartbeat(fence),
    "report": lambda model, fence: model.heartbeat(fence, stage=f"stage {model.draws.step % 3}", progress=model.draws.step),
    "ask for help": lambda model, fence: model.heartbeat(fence, assist_requested=True),
    "leave a checkpoint": lambda model, fence: model.heartbeat(fence, checkpoint={"step": model.draws.step}),
    "register an undo step": lambda model, fence: model.heartbeat(fence, undo={"kind": "u", "args": {"n": model.draws.step}}),
    "assist": lambda model, fence: model.assist(1),
    "unassist": lambda model, fence: model.unassist(1),
    "fail": lambda model, fence: model.fail(fence, "broke"),
    "fail at a stage": lambda model, fence: model.fail(fence, "broke", failure_stage="fetch", reason_code="timeout"),
    "release": lambda model, fence: model.release(fence),
    "release and say why": lambda model, fence: model.release(fence, reason="low battery"),
    "give up": lambda model, fence: model.stall(fence),
    "give up with an error": lambda model, fence: model.stall(fence, error="no arm", failure_stage="input"),
    "come back": lambda model, fence: model.resume(fence),
    "call dead": lambda model, fence: model.stall(1),
    "call alive": lambda model, fence: model.resume(1),
    "requeue": lambda model, fence: model.requeue(1),
    "sweep": lambda model, fence: model.sweep(),
    "move": lambda model, fence: model.move(1, f"queue {model.draws.step % 3}"),
    "assign to a worker": lambda model, fence: model.move(1, for_worker=["", "w", "v"][model.draws.step % 3]),
    "reprioritise": lambda model, fence: model.reprioritise(1, model.draws.step % 3),
    "reschedule": lambda model, fence: model.reschedule(1, delay=model.draws.step % 3),
    "replace": lambda model, fence: model.enqueue("k", {"n": model.draws.step % 3}, dedupe_key="d", on_duplicate="replace"),
    "postpone": lambda model, fence: model.enqueue(
        "k", {"n": model.draws.step % 3}, dedupe_key="d", on_duplicate="postpone", delay=2, postpone_max=30
    ),
    "cancel": lambda model, fence: model.cancel(1, reason="enough"),
}
ENDS: dict[str, Step] = {
    "complete": lambda model, fence: model.complete(fence, {"n": 1}),
    "fail for good": lambda model, fence: model.fail(fence, {"message": "no"}, retryable=False),
    "fail on input": lambda model, fence: model.fail(fence, "bad", retryable=False, reason_code="parse_error"),
    "acknowledge": lambda model, fence: model.acknowledge_cancel(fence),
    "cancel hard": lambda model, fence: model.cancel(1, hard=True),
    "dead-letter": lambda model, fence: model.dead_letter(1, reason_code="timeout"),
    "note": lambda model, fence: model.annotate(1, "compensated"),
    "another note": lambda model, fence: model.discard(1, reason="done with"),
}
pauses = st.sampled_from([0, 0, 1, SECOND, SECOND, 5 * SECOND, 31 * SECOND, 61 * SECOND, -10 * SECOND])
options = st.fixed_dictionaries(
    {},
    optional={
        "tier": st.just("in_home"),
        "trace_id": st.just("trace"),
        "correlation_id": st.just("given"),
        "delay": st.just(2),
        "dedupe_key": st.just("d"),
        "policy": st.sampled_from(
            [
                {"attempts_max": 2, "backoff_base": 0},
                {"resume_window": 30, "cancel_grace": 5},
                {"progress_timeout": 4, "attempts_max": 1, "on_exhausted": "fail"},
            ]
        ),
    },
)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A job that got random commands. Refused ones changed nothing."""
    at = START

    def tell(step: Step) -> None:
        model.draws.step += 1
        job = model.jobs[1]
        fence = Fence(1, job.attempt, job.token or "", job.owner or job.last_owner or "")
        try:
            step(model, fence)
        except HoldfastError:
            assert model.jobs[1] is job

    model = Model(lambda: at, lambda: 0.0, Draws(), "pure")
    model.enqueue("k", {"n": 1}, **draw(options))
    for name, pause in draw(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), pauses), min_size=1, max_size=25)):
        at += pause
        tell(STEPS[name])
    for name in draw(st.lists(st.sampled_from(sorted(ENDS)), max_size=4)):
        tell(ENDS[name])
    return Life(model.history[1], model.jobs[1])


MANY = settings(max_examples=300, deadline=None)


@MANY
@given(life=lives())
def test_a_history_and_its_beginnings_are_valid(life: Life) -> None:
    assert fold(life.events) == _replace(life.row, token=None)
    assert check_history(life.events, life.row) == []
    for end in range(1, len(life.events)):
        beginning = life.events[:end]
        row = fold(beginning)
        assert row is not None and row.rev == end
        assert check_history(beginning, row) == []


@MANY
@given(life=lives(), data=st.data())
def test_a_rearranged_history_is_found(life: Life, data: st.DataObject) -> None:
    """Each event is left out, with its rev and with forged ones, and comes again. Two events are swapped."""
    places = st.integers(0, len(life.events) - 1)
    again = data.draw(places)
    for place, event in enumerate(life.events):
        without = life.events[:place] + life.events[place + 1 :]
        assert check_history(without, life.row)
        assert check_history([_replace(left, rev=rev) for rev, left in enumerate(without, 1)], life.row)
        assert check_history([*life.events[:again], event, *life.events[again:]], life.row)
    if len(life.events) > 1:
        one, other = data.draw(st.lists(places, min_size=2, max_size=2, unique=True))
        events = list(life.events)
        events[one], events[other] = events[other], events[one]
        assert check_history(events, life.row)


# One event edited

Edit = Callable[[Sequence[EventRecord], int], EventRecord | None]
"""The changed event at an index, or None if the change cannot be noticed or changes nothing."""


def _field(name: str, change: Callable[[EventRecord], Any]) -> Edit:
    def edit(events: Sequence[EventRecord], place: int) -> EventRecord | None:
        found = _replace(events[place], **{name: change(events[place])})
        return None if found == events[place] else found

    return edit


def _said(of: EventType, /, **changes: Callable[[Any, EventRecord], Any]) -> Edit:
    """A payload of one type with a field changed."""

    def edit(events: Sequence[EventRecord], place: int) -> EventRecord | None:
        event = events[place]
        if event.type is not of:
            return None
        body = payloads.decode(payloads.PAYLOAD_TYPES[of], event.payload)
        changed = _replace(body, **{name: change(getattr(body, name), event) for name, change in changes.items()})
        return None if changed == body else _replace(event, payload=changed.encode())

    return edit


def _only(edit: Edit, wanted: Callable[[Sequence[EventRecord], int], bool]) -> Edit:
    return lambda events, place: edit(events, place) if wanted(events, place) else None


def _more(number: int | None, _: EventRecord) -> int:
    return (number or 0) + 1


def _worker_again(events: Sequence[EventRecord], place: int) -> bool:
    """A worker that another event of the same attempt, or the row, also names."""
    event, later = events[place], events[place + 1 :]
    if event.actor.role is not Role.WORKER:
        return False
    if event.type is not E.CLAIMED:
        return True
    same = [other for other in later if other.attempt == event.attempt and other.actor.role is Role.WORKER]
    return bool(same) or not any(other.type is E.CLAIMED for other in later)


def _later(kind: EventType) -> Callable[[Sequence[EventRecord], int], bool]:
    return lambda events, place: not any(event.type is kind for event in events[place + 1 :])


def _is_last_call(events: Sequence[EventRecord], place: int) -> bool:
    return not any(event.type in (E.REPLACED, E.POSTPONED) for event in events[place + 1 :])


def _before_its_predecessor(events: Sequence[EventRecord], place: int) -> EventRecord | None:
    return _replace(events[place], received_at=(events[place - 1].received_at if place else events[0].received_at) - 1)


def _after_its_successor(events: Sequence[EventRecord], place: int) -> EventRecord | None:
    after = events[place + 1] if place + 1 < len(events) else events[place]
    return _replace(events[place], received_at=after.received_at + 1)


def _other_type(events: Sequence[EventRecord], place: int) -> EventRecord | None:
    """Change only the name of the type."""
    twins = {E.STARTED: E.RESUMED, E.RESUMED: E.STARTED, E.CANCEL_REQUESTED: E.ASSIST_STARTED}
    event = events[place]
    if event.type in (E.HEARTBEAT, E.ASSIST_STARTED, E.ASSIST_ENDED):
        return None
    return _replace(event, type=twins.get(event.type, E.HEARTBEAT))


def _other_assistance(events: Sequence[EventRecord], place: int) -> EventRecord | None:
    """Exchange the start and the end of assistance."""
    twins = {E.ASSIST_STARTED: E.ASSIST_ENDED, E.ASSIST_ENDED: E.ASSIST_STARTED}
    event = events[place]
    return _replace(event, type=twins[event.type]) if event.type in twins else None


def _other_status(status: Status | None) -> Status:
    return Status.RUNNING if status is not Status.RUNNING else Status.STALLED


PLACING = (E.MOVED, E.REPRIORITISED, E.RESCHEDULED)
CALLS = (E.REPLACED, E.POSTPONED)
EDITS: dict[str, Edit] = {
    "args of the last replaced": _only(_said(E.REPLACED, args=lambda args, _: msgspec.Raw(b"[]")), _is_last_call),
    "args of the last postponed": _only(_said(E.POSTPONED, args=lambda args, _: msgspec.Raw(b"[]")), _is_last_call),
    "available_at of postponed": _only(_said(E.POSTPONED, available_at=_more), _later(E.REQUEUED)),
    "from_at of postponed": _said(E.POSTPONED, from_at=_more),
    "queue of moved": _said(E.MOVED, queue=lambda queue, _: "another"),
    "from_queue of moved": _said(E.MOVED, from_queue=lambda queue, _: "another"),
    "for_worker of moved": _only(_said(E.MOVED, for_worker=lambda worker, _: None if worker is None else "else"), _is_last_call),
    "from_worker of moved": _said(E.MOVED, from_worker=lambda worker, _: None if worker is None else "else"),
    "priority of reprioritised": _only(_said(E.REPRIORITISED, priority=_more), _is_last_call),
    "from_priority of reprioritised": _said(E.REPRIORITISED, from_priority=_more),
    "available_at of rescheduled": _only(_said(E.RESCHEDULED, available_at=_more), _later(E.REQUEUED)),
    "from_at of rescheduled": _said(E.RESCHEDULED, from_at=_more),
    "job_id": _field("job_id", lambda e: e.job_id + 1),
    "rev up": _field("rev", lambda e: e.rev + 1),
    "rev down": _field("rev", lambda e: e.rev - 1),
    "type": _other_type,
    "assistance": _other_assistance,
    "received_at before": _before_its_predecessor,
    "received_at after": _after_its_successor,
    "role": _only(
        _field("actor", lambda e: Actor(Role.CLIENT, "another")),
        lambda events, place: events[place].type not in (E.ENQUEUED, E.CANCELLED, E.CANCEL_REQUESTED, *PLACING, *CALLS),
    ),
    "worker": _only(_field("actor", lambda e: Actor(Role.WORKER, "another", e.actor.incarnation)), _worker_again),
    "incarnation": _only(_field("actor", lambda e: Actor(Role.WORKER, e.actor.name, "another")), _worker_again),
    "attempt": _field("attempt", lambda e: e.attempt + 1),
    "from_status": _field("from_status", lambda e: _other_status(e.from_status)),
    "to_status": _field("to_status", lambda e: _other_status(e.to_status)),
    "correlation_id": _field("correlation_id", lambda e: "another"),
    "trace_id": _field("trace_id", lambda e: "another"),
    "policy": _only(
        _field("policy", lambda e: Policy(attempts_max=999)),
        lambda events, place: events[place].type in (E.CLAIMED, E.STALLED),
    ),
    "policy gone": _only(_field("policy", lambda e: None), lambda events, place: events[place].type in (E.CLAIMED, E.STALLED)),
    "policy where none is": _only(
        _field("policy", lambda e: Policy()), lambda events, place: events[place].type not in (E.CLAIMED, E.STALLED)
    ),
    "reason of cancelled": _only(_field("reason", lambda e: "another"), lambda events, place: events[place].type is E.CANCELLED),
    "reason of dead_lettered": _only(
        _field("reason", lambda e: "policy_violation"), lambda events, place: events[place].type is E.DEAD_LETTERED
    ),
    "reason of the last stall": _only(
        _field("reason", lambda e: "WORKER_ERROR"),
        lambda events, place: events[place].type is E.STALLED and place == len(events) - 1,
    ),
    "reason where none is": _only(
        _field("reason", lambda e: "because"),
        lambda events, place: events[place].type in (E.ENQUEUED, E.CLAIMED, E.STARTED, E.HEARTBEAT, E.SUCCEEDED),
    ),
    "reason of failed": _only(_field("reason", lambda e: "because"), lambda events, place: events[place].type is E.FAILED),
    "payload unreadable": _only(
        _field("payload", lambda e: b"{"), lambda events, place: events[place].type in payloads.PAYLOAD_TYPES
    ),
    "payload gone": _only(
        _field("payload", lambda e: None),
        lambda events, place: events[place].type in (E.ENQUEUED, E.REQUEUED, E.SUCCEEDED, E.FAILED, E.DEAD_LETTERED),
    ),
    "payload where none is": _only(
        _field("payload", lambda e: b'{"x":1}'), lambda events, place: events[place].type not in payloads.PAYLOAD_TYPES
    ),
    "queue": _said(E.ENQUEUED, queue=lambda queue, _: "another"),
    "kind": _said(E.ENQUEUED, kind=lambda kind, _: "another"),
    "args": _only(_said(E.ENQUEUED, args=lambda args, _: msgspec.Raw(b'{"n":2}')), _is_last_call),
    "priority": _only(_said(E.ENQUEUED, priority=_more), _is_last_call),
    "tier": _only(_said(E.ENQUEUED, tier=lambda tier, _: "another"), _is_last_call),
    "override": _only(_said(E.ENQUEUED, policy=lambda policy, _: msgspec.Raw(b'{"attempts_max":99}')), _is_last_call),
    "replay_of": _said(E.ENQUEUED, replay_of=_more),
    "delay": _only(_said(E.ENQUEUED, delay_us=_more), _later(E.REQUEUED)),
    "last_beat_at of stalled": _said(E.STALLED, last_beat_at=_more),
    "lease_expires_at of stalled": _said(E.STALLED, lease_expires_at=_more),
    "holder of stalled": _said(E.STALLED, holder=lambda holder, _: "another"),
    "incarnation of stalled": _said(E.STALLED, incarnation=lambda incarnation, _: "another"),
    "detected_at of stalled": _said(E.STALLED, detected_at=_more),
    "error of the last stall": _only(
        _said(E.STALLED, error=lambda error, _: msgspec.Raw(b'{"message":"another"}')),
        lambda events, place: place == len(events) - 1,
    ),
    "stage of the last stall": _only(
        _said(E.STALLED, failure_stage=lambda stage, _: "commit"), lambda events, place: place == len(events) - 1
    ),
    "released": _only(
        _said(E.REQUEUED, released=lambda released, _: not released), lambda events, place: events[place].reason != "RELEASED"
    ),
    "available_at": _only(_said(E.REQUEUED, available_at=_more), _later(E.REQUEUED)),
    "result": _said(E.SUCCEEDED, result=lambda result, _: msgspec.Raw(b"2")),
    "error": _said(E.FAILED, error=lambda error, _: msgspec.Raw(b'{"message":"another"}')),
    "failure": _said(E.FAILED, failure=lambda failure, _: "exhausted" if failure == "permanent" else "permanent"),
    "stage of failed": _said(E.FAILED, failure_stage=lambda stage, _: "commit"),
    "reason_code": _said(E.DEAD_LETTERED, reason_code=lambda code, _: "policy_violation"),
    "failure_stage": _said(E.DEAD_LETTERED, failure_stage=lambda stage, _: "commit"),
    "last_error": _said(E.DEAD_LETTERED, last_error=lambda error, _: msgspec.Raw(b'{"message":"another"}')),
    "attempts": _said(E.DEAD_LETTERED, attempts=_more),
    "last_owner": _said(E.DEAD_LETTERED, last_owner=lambda owner, _: "another"),
    "last_lease_expires_at": _said(E.DEAD_LETTERED, last_lease_expires_at=_more),
    "correlation_id of dead_lettered": _said(E.DEAD_LETTERED, correlation_id=lambda found, _: "another"),
    "progress of the last beat": _only(_said(E.HEARTBEAT, progress=_more), lambda events, place: place == len(events) - 1),
}


@settings(max_examples=400, deadline=None)
@given(life=lives())
def test_an_edited_event_is_found(life: Life) -> None:
    """Every edit at every index. Drawing a history takes far longer than checking it, so the edits share histories."""
    for name, edit in EDITS.items():
        for place in range(len(life.events)):
            changed = edit(life.events, place)
            if changed is not None:
                forged = [*life.events[:place], changed, *life.events[place + 1 :]]
                assert check_history(forged, life.row), (name, place, changed)
