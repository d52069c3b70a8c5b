"""Envelopes: the statement that a robot signed is read back."""

from typing import Any

import pytest

from holdfast.core.model import Actor, EventType, Role
from holdfast.errors import HoldfastError, SignatureInvalid
from holdfast.proof.encoding import canonical
from holdfast.proof.envelopes import read_envelope, robot_envelope, sign_envelope
from holdfast.proof.keys import SecretKey, verify
from holdfast.proof.statements import read_statement, statement_message

SECRET = SecretKey(b"\1" * 32)
BOUND: dict[str, Any] = {
    "ledger_id": "8f2e",
    "job_id": 7,
    "attempt": 2,
    "robot": "arm-1",
    "incarnation": "boot-1",
    "counter": 3,
    "at": 1_769_385_600_000_001,
}
SENT = robot_envelope(SECRET, **BOUND, stage="TASK", progress=0, assist_requested=False)


def test_the_beat_of_a_robot_is_read():
    statement, key_id, signature = read_envelope(SENT)
    assert key_id == SECRET.key_id
    assert verify(SECRET.public_key, statement_message(statement), signature)
    found = read_statement(statement)
    assert (found.job_id, found.at, found.counter) == (7, BOUND["at"], 3)
    assert found.actor == Actor(Role.WORKER, "arm-1", "boot-1")
    assert (found.stage, found.progress, found.assist_requested) == ("TASK", 0, False)


def test_the_resume_of_a_robot_is_read():
    found = read_statement(read_envelope(robot_envelope(SECRET, **BOUND, kind=EventType.RESUMED)).statement)
    assert (found.type, found.stage) == (EventType.RESUMED, None)


def test_reading_does_not_change_the_envelope():
    before = dict(SENT)
    read_envelope(SENT)
    assert before == SENT


def test_the_order_of_its_fields_does_not_matter():
    assert read_envelope(dict(reversed(SENT.items()))) == read_envelope(SENT)


@pytest.mark.parametrize(
    "bent",
    [
        None,
        [],
        "text",
        {"keyId": 1},
        {"keyId": "0" * 15},
        {"keyId": "0" * 17},
        {"keyId": "A" * 16},
        {"signature": 1},
        {"signature": ""},
        {"signature": "AAAA"},
        {"signature": SENT["signature"][:-1]},
        {"signature": SENT["signature"] + "\n"},
        {"more": 1.5},
        {"more": "x" * 9_000},
        {3: 4},
    ],
    ids=lambda bent: repr(bent)[:40],
)
def test_invalid_envelopes_are_refused(bent: Any):
    given = SENT | bent if isinstance(bent, dict) and bent else bent
    with pytest.raises(HoldfastError) as caught:
        read_envelope(given)
    assert caught.value.code in ("validation_error", "limit_exceeded")


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        (["keyId"], "keyId is missing"),
        (["signature"], "signature is missing"),
        (["keyId", "signature"], "keyId and signature are missing"),
    ],
)
def test_an_unsigned_envelope_is_reported_as_unsigned(absent: list[str], words: str):
    with pytest.raises(SignatureInvalid, match=f"the envelope is not signed: {words}") as caught:
        read_envelope({name: value for name, value in SENT.items() if name not in absent})
    assert caught.value.context["why"] == "missing"


def test_any_statement_can_be_signed():
    sealed = sign_envelope({"v": 1}, SECRET)
    assert verify(SECRET.public_key, statement_message(canonical({"v": 1})), read_envelope(sealed).signature)
