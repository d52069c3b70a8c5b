"""Which events must be signed, and what a statement says. The contract suite tests statements of every verb."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.model import SYSTEM, Actor, EventType, Fence, Policy, Role
from holdfast.core.payloads import BeatPayload
from holdfast.core.policy import must_be_signed
from holdfast.errors import SignatureInvalid
from holdfast.proof.keys import KeyRole
from holdfast.proof.signing import check_stated, holder_statement, signed_payload, signer_of
from tests.unit.histories import CLIENT, OPERATOR, WORKER, History
from tests.unit.signing import ALL, LEDGER, LIVENESS, SignedHistory, sealed

E = EventType
BEAT: dict[str, Any] = {"beat": BeatPayload(stage="A", progress=1)}


def test_no_signature_is_required_without_a_policy():
    assert not any(must_be_signed(policy, kind) for policy in (None, Policy()) for kind in E)


def test_liveness_signs_three_event_types_and_all_signs_all_but_three():
    assert {kind for kind in E if must_be_signed(LIVENESS, kind)} == {E.HEARTBEAT, E.STALLED, E.RESUMED}
    assert set(E) - {kind for kind in E if must_be_signed(ALL, kind)} == {E.ENQUEUED, E.CLAIMED, E.STARTED}


def test_each_actor_has_its_signing_role():
    assert signer_of(WORKER) == (KeyRole.WORKER, "w-1")
    assert signer_of(SYSTEM) == signer_of(Actor(Role.SYSTEM, "w-1")) == (KeyRole.SERVER, None)
    assert signer_of(OPERATOR) == (KeyRole.OPERATOR, "ann")
    assert signer_of(CLIENT) == (KeyRole.OPERATOR, "shop")


def test_the_comment_of_an_acknowledged_cancel_is_signed() -> None:
    history = History().start().cancel()
    command = c.AcknowledgeCancel(actor=WORKER, job_id=7, fence=history.fence, reason="cleaned up")
    assert signed_payload(command) == payloads.CancelledPayload(comment="cleaned up").encode()


def test_a_signature_has_signer_time_and_attempt() -> None:
    history = SignedHistory().start()
    signed = history.stated(c.Release, {"fence": history.fence})
    assert (signed.signer, signed.signed_at, signed.attempt, signed.counter) == (WORKER, history.now, 1, history.counter)


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"job_id": 2}, "job"), ({"attempt": 2}, "attempt"), ({"payload_sha256": "0" * 64}, "payload")],
)
def test_a_statement_is_that_of_its_request(changed: dict[str, Any], why: str):
    command = c.Heartbeat(actor=WORKER, job_id=1, fence=Fence(1, 1, "t", WORKER.name, WORKER.incarnation), **BEAT)
    said = holder_statement(LEDGER, command, WORKER, 1, counter=7, at=0)
    check_stated(sealed(said), command, WORKER, 1)
    check_stated(sealed(msgspec.structs.replace(said, counter=9)), command, WORKER, 1)
    with pytest.raises(SignatureInvalid) as refused:
        check_stated(sealed(msgspec.structs.replace(said, **changed)), command, WORKER, 1)
    assert refused.value.context["why"] == why
