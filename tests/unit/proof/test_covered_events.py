"""Which events a statement covers, checked against the events that the commands make."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.model import SYSTEM, EventRecord, EventType, FailureStage, Policy, ReasonCode, Role
from holdfast.core.payloads import BeatPayload, beat_payload, result_payload
from holdfast.proof.envelopes import read_envelope, robot_envelope
from holdfast.proof.keys import SecretKey
from holdfast.proof.signing import COVERED_TYPES, find_mismatch
from holdfast.proof.statements import EMPTY_SHA256, Statement, encode_ledger_statement, encode_statement, read_statement
from tests.unit.histories import ERROR, OPERATOR, WINDOW, WORKER, History

E = EventType
AT = 1_769_385_600_000_000
GIVEN = b'{"error":' + ERROR + b"}"
replace = msgspec.structs.replace


def _stated(kind: EventType, content: bytes | None = None, **fields: Any) -> Statement:
    digest = sha256(content or b"").hexdigest()
    made = Statement(
        ledger="8f2e", job_id=7, attempt=1, type=kind, actor=WORKER, at=AT, counter=1, payload_sha256=digest, **fields
    )
    return read_statement(encode_statement(made))


def _since(history: History, act: Callable[[History], Any]) -> list[EventRecord]:
    """The events of a holder's command, with the holder's time."""
    before = len(history.events)
    act(history)
    return [replace(event, at=AT) for event in history.events[before:] if event.actor == WORKER]


def _late() -> History:
    """A running job with an expired lease: every verb of its holder resumes it first."""
    return History(WINDOW).start().wait(3_600)


def _name(given: Any) -> str:
    return "" if callable(given) else str(given)


LAST = Policy(attempts_max=1)
COMMANDS: list[tuple[EventType, bytes | None, Callable[[], History], Callable[[History], Any], list[str]]] = [
    (E.HEARTBEAT, None, lambda: History().start(), lambda h: h.beat(), ["heartbeat"]),
    (E.HEARTBEAT, b'{"stage":"A"}', _late, lambda h: h.beat(stage="A"), ["resumed", "heartbeat"]),
    (E.SUCCEEDED, result_payload(b"1"), _late, lambda h: h.complete(), ["resumed", "succeeded"]),
    (E.FAILED, GIVEN, _late, lambda h: h.fail(retryable=False), ["resumed", "failed"]),
    (E.FAILED, GIVEN, _late, lambda h: h.fail(), ["resumed", "stalled", "requeued"]),
    (E.FAILED, GIVEN, lambda: History(LAST).start(), lambda h: h.fail(), ["dead_lettered"]),
    (E.FAILED, GIVEN, lambda: History(replace(LAST, on_exhausted="fail")).start(), lambda h: h.fail(), ["failed"]),
    (E.FAILED, GIVEN, lambda: History().start(),
     lambda h: h.fail(retryable=False, reason_code=ReasonCode.PARSE_ERROR), ["dead_lettered"]),
    (E.FAILED, GIVEN, lambda: History().start().cancel(), lambda h: h.fail(), ["cancelled"]),
    (E.STALLED, None, lambda: History().start(), lambda h: h.do(c.Stall), ["stalled"]),
    (E.STALLED, GIVEN, lambda: History().start(), lambda h: h.do(c.Stall, error=ERROR), ["stalled"]),
    (E.RESUMED, None, lambda: History(WINDOW).start().stall(), lambda h: h.do(c.Resume), ["resumed"]),
    (E.REQUEUED, None, _late, lambda h: h.do(c.Release), ["resumed", "stalled", "requeued"]),
    (E.REQUEUED, None, lambda: History().start().cancel(), lambda h: h.do(c.Release), ["stalled", "cancelled"]),
    (E.CANCELLED, None, lambda: _late().cancel(), lambda h: h.do(c.AcknowledgeCancel), ["resumed", "cancelled"]),
    (E.CANCELLED, b'{"comment":"done"}', lambda: History().start().cancel(),
     lambda h: h.do(c.AcknowledgeCancel, reason="done"), ["cancelled"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "content", "before", "act", "types"), COMMANDS, ids=_name)
def test_a_statement_covers_the_events_of_its_command(
    kind: EventType, content: bytes | None, before: Callable[[], History], act: Callable[[History], Any], types: list[str]
):
    events = _since(before(), act)
    assert [event.type.value for event in events] == types
    assert [find_mismatch(_stated(kind, content), event, "8f2e") for event in events] == [None] * len(events)


@pytest.mark.parametrize(
    ("kind", "before", "act"),
    [(kind, before, act) for kind, content, before, act, _ in COMMANDS if content is not None],
    ids=_name,
)
def test_a_different_payload_is_found(kind: EventType, before: Callable[[], History], act: Callable[[History], Any]):
    events = _since(before(), act)
    assert "payload" in [find_mismatch(_stated(kind, b'{"other":1}'), event, "8f2e") for event in events]
    assert "payload" in [find_mismatch(_stated(kind), event, "8f2e") for event in events]


def _beat(**fields: Any) -> EventRecord:
    return _since(History().start(), lambda h: h.beat(**fields))[0]


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"job_id": 8}, "job"),
        ({"attempt": 2}, "attempt"),
        ({"actor": replace(WORKER, incarnation="boot-2")}, "actor"),
        ({"actor": SYSTEM}, "actor"),
        ({"type": E.SUCCEEDED}, "type"),
        ({"type": E.STALLED}, "type"),
        ({"at": AT + 1}, "at"),
        ({"at": None}, "at"),
        ({"payload": b'{"stage":"B"}'}, "payload"),
        ({"payload": None}, "payload"),
        ({"at": None, "received_at": AT}, None),
        ({"reason": "ASSIST_REQUESTED"}, None),
        ({"rev": 99}, None),
    ],
)
def test_an_event_that_differs_from_its_statement_is_found(changed: dict[str, Any], what: str | None):
    statement = _stated(E.HEARTBEAT, beat_payload(BeatPayload(stage="A")))
    assert find_mismatch(statement, replace(_beat(stage="A"), **changed), "8f2e") == what


def test_the_ledger_is_compared_and_optional_fields_only_if_stated():
    event = replace(_beat(), policy=Policy())
    assert find_mismatch(_stated(E.HEARTBEAT), event, "else") == "ledger"
    assert find_mismatch(_stated(E.HEARTBEAT), event, "8f2e") is None
    assert find_mismatch(replace(_stated(E.HEARTBEAT), rev=event.rev), event, "8f2e") is None
    assert find_mismatch(replace(_stated(E.HEARTBEAT), rev=event.rev + 1), event, "8f2e") == "rev"
    assert find_mismatch(replace(_stated(E.HEARTBEAT), policy=Policy()), event, "8f2e") is None
    assert find_mismatch(replace(_stated(E.HEARTBEAT), policy=WINDOW), event, "8f2e") == "policy"


REASONED: dict[str, tuple[EventType, Callable[[], History], type[c.JobCommand], int]] = {
    "release": (E.REQUEUED, lambda: History().start(), c.Release, 1),
    "release of an aborting job": (E.REQUEUED, lambda: History().start().cancel(), c.Release, 1),
    "resume": (E.RESUMED, lambda: History(WINDOW).start().stall(), c.Resume, 0),
    "late resume": (E.RESUMED, _late, c.Resume, 0),
}


@pytest.mark.parametrize(("kind", "before", "command", "place"), REASONED.values(), ids=REASONED)
def test_the_reason_of_a_holder_must_be_the_signed_one(
    kind: EventType, before: Callable[[], History], command: type[c.JobCommand], place: int
):
    event = _since(before(), lambda h: h.do(command, reason="low battery"))[place]
    assert find_mismatch(_stated(kind, reason="low battery"), event, "8f2e") is None
    assert find_mismatch(_stated(kind, reason="else"), event, "8f2e") is not None
    assert find_mismatch(_stated(kind), event, "8f2e") is not None


@pytest.mark.parametrize("kind", [E.HEARTBEAT, E.SUCCEEDED, E.FAILED, E.REQUEUED])
def test_a_resume_caused_by_another_verb_has_no_reason(kind: EventType):
    resumed = _since(_late(), lambda h: h.beat())[0]
    assert find_mismatch(_stated(kind), resumed, "8f2e") is None
    assert find_mismatch(_stated(kind), replace(resumed, reason="else"), "8f2e") == "reason"


def test_only_the_event_of_the_signed_type_has_the_reason():
    stalled, requeued = _since(History().start(), lambda h: h.do(c.Release))
    assert find_mismatch(replace(_stated(E.REQUEUED), reason="RELEASED"), stalled, "8f2e") is None
    assert find_mismatch(replace(_stated(E.REQUEUED), reason="else"), stalled, "8f2e") is None
    assert find_mismatch(replace(_stated(E.REQUEUED), reason="RELEASED"), requeued, "8f2e") is None
    assert find_mismatch(replace(_stated(E.REQUEUED), reason="else"), requeued, "8f2e") == "reason"


def test_a_pruned_beat_matches_its_statement():
    body = BeatPayload(stage="A").encode()
    pruned = replace(_beat(), payload=BeatPayload(pruned=sha256(body).hexdigest()).encode())
    assert find_mismatch(_stated(E.HEARTBEAT, body), pruned, "8f2e") is None
    assert find_mismatch(_stated(E.HEARTBEAT), pruned, "8f2e") == "payload"


def _robots(**fields: Any) -> Statement:
    bound: dict[str, Any] = {
        "ledger_id": "8f2e",
        "job_id": 7,
        "attempt": 1,
        "robot": "w-1",
        "incarnation": "boot-1",
        "counter": 1,
        "at": AT,
    }
    return read_statement(read_envelope(robot_envelope(SecretKey(b"\1" * 32), **bound | fields)).statement)


@pytest.mark.parametrize("fields", [{}, {"stage": "A"}, {"stage": "A", "progress": 3, "assist_requested": True}])
def test_a_robots_heartbeat_matches_its_payload(fields: dict[str, Any]):
    event = _beat(**fields)
    assert find_mismatch(_robots(**fields), event, "8f2e") is None
    assert find_mismatch(_robots(**fields | {"stage": "B"}), event, "8f2e") == "payload"
    if event.payload is not None:
        pruned = replace(event, payload=BeatPayload(pruned=sha256(event.payload).hexdigest()).encode())
        assert find_mismatch(_robots(**fields), pruned, "8f2e") is None
        assert find_mismatch(_robots(**fields | {"progress": 4}), pruned, "8f2e") == "payload"


def test_a_robots_resume_matches_its_event():
    beaten = _since(_late(), lambda h: h.beat(stage="A"))
    assert [find_mismatch(_robots(stage="A"), event, "8f2e") for event in beaten] == [None, None]
    assert find_mismatch(_robots(kind=E.RESUMED), beaten[0], "8f2e") is None
    assert find_mismatch(_robots(kind=E.RESUMED), beaten[1], "8f2e") == "type"


def _stall_by_system() -> EventRecord:
    return next(event for event in History(WINDOW).start().wait(3_600).sweep().events if event.type is E.STALLED)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({}, None),
        ({"rev": 99}, "rev"),
        ({"reason": None}, "reason"),
        ({"policy": None}, "policy"),
        ({"policy": Policy()}, "policy"),
        ({"payload": None}, "payload"),
        ({"type": E.REQUEUED}, "type"),
        ({"actor": WORKER}, "actor"),
    ],
)
def test_the_systems_statement_is_compared_field_by_field(changed: dict[str, Any], what: str | None):
    event = _stall_by_system()
    assert find_mismatch(read_statement(encode_ledger_statement("8f2e", event)), replace(event, **changed), "8f2e") == what


def test_the_systems_statement_covers_one_event():
    event = replace(_stall_by_system(), type=E.CANCELLED)
    assert find_mismatch(read_statement(encode_ledger_statement("8f2e", event)), replace(event, type=E.RESUMED), "8f2e") == "type"


def _by_operator(kind: EventType, **fields: Any) -> Statement:
    return Statement(
        ledger="8f2e", job_id=7, attempt=1, type=kind, actor=OPERATOR, at=AT, counter=1, payload_sha256=EMPTY_SHA256, **fields
    )  # fmt: skip


def test_a_statement_for_a_cancel_covers_every_outcome():
    soft = History().start().cancel(actor=OPERATOR, reason="enough").events[-1]
    hard = History().start().cancel(actor=OPERATOR, hard=True, reason="enough").events[-1]
    asked = [find_mismatch(_by_operator(E.CANCEL_REQUESTED), replace(event, at=AT), "8f2e") for event in (soft, hard)]
    assert asked == [None, None]
    assert find_mismatch(_by_operator(E.CANCELLED), replace(soft, at=AT), "8f2e") == "type"


def test_an_operators_dead_letter_may_keep_an_older_error():
    fields: dict[str, Any] = {"actor": OPERATOR, "reason_code": ReasonCode.TIMEOUT, "failure_stage": FailureStage.EXEC}
    history = History().start().fail().wait(60).start()
    event = replace(history.do(c.DeadLetter, **fields).events[-1], at=AT, attempt=1)
    assert event.actor.role is Role.OPERATOR
    assert find_mismatch(_by_operator(E.DEAD_LETTERED), event, "8f2e") is None
    assert find_mismatch(replace(_by_operator(E.DEAD_LETTERED), payload_sha256="0" * 64), event, "8f2e") == "payload"


def test_an_unreadable_payload_matches_no_statement():
    event = replace(_since(History().start(), lambda h: h.do(c.Stall))[0], payload=b"{")
    assert find_mismatch(_stated(E.STALLED), event, "8f2e") == "payload"


def test_every_type_covers_itself():
    assert set(COVERED_TYPES) == set(EventType)
    assert all(kind in covered for kind, covered in COVERED_TYPES.items())


@pytest.mark.parametrize("payload", [b'{"error":' + b"[" * 4_000, b'{"error":"\xff"}', b"{"])
def test_an_unreadable_payload_does_not_match_its_statement(payload: bytes):
    [event] = _since(History().start(), lambda h: h.do(c.Stall, error=ERROR))
    assert find_mismatch(_stated(E.STALLED, GIVEN), replace(event, payload=payload), "8f2e") == "payload"
