"""Which events must be signed, and what a statement says. The contract suite tests statements of every verb."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.model import Fence
from holdfast.core.payloads import BeatPayload
from holdfast.errors import SignatureInvalid
from holdfast.proof.signing import check_stated, holder_statement
from tests.unit.histories import WORKER
from tests.unit.signing import LEDGER, SignedHistory, sealed

BEAT: dict[str, Any] = {"beat": BeatPayload(stage="A", progress=1)}


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
