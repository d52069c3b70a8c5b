"""Statements: both forms are read strictly, Holdfast's own is written in one way."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.model import SYSTEM, Actor, EventRecord, EventType, Fence, Policy, Role, Status
from holdfast.core.payloads import NO_BEAT
from holdfast.errors import HoldfastError
from holdfast.proof.encoding import canonical
from holdfast.proof.keys import SecretKey, verify
from holdfast.proof.signing import holder_statement
from holdfast.proof.statements import (
    EMPTY_SHA256,
    Statement,
    encode_ledger_statement,
    encode_statement,
    read_statement,
    statement_message,
)

WORKER = Actor(Role.WORKER, "arm-1", "boot-1")
OPERATOR = Actor(Role.OPERATOR, "ann")
FENCE = Fence(7, 2, "token", "arm-1", "boot-1")
AT = 1_769_385_600_000_000
OURS: dict[str, Any] = {
    "v": 1,
    "ledger": "8f2e",
    "job": 7,
    "attempt": 2,
    "type": "heartbeat",
    "actor": "worker:arm-1#boot-1",
    "counter": 3,
    "at": AT,
    "payload": EMPTY_SHA256,
}
SEED: dict[str, Any] = {
    "type": "JOB_HEARTBEAT",
    "at": "2026-01-26T00:00:00.000Z",
    "actor": {"type": "robot", "id": "arm-1"},
    "payload": {
        "jobId": "7",
        "robotId": "arm-1",
        "t": "2026-01-26T00:00:00.000Z",
        "stage": "TASK",
        "progress": 3,
        "assistRequested": False,
    },
    "binding": {"ledger": "8f2e", "attempt": 2, "incarnation": "boot-1", "counter": 3},
}


def _put(value: dict[str, Any], path: str, given: Any) -> dict[str, Any]:
    """A copy of `value` with one field set, or removed if None is given."""
    first, _, rest = path.partition(".")
    if rest:
        return value | {first: _put(value[first], rest, given)}
    return {name: item for name, item in (value | {first: given}).items() if item is not None}


def _code(body: bytes) -> str:
    with pytest.raises(HoldfastError) as caught:
        read_statement(body)
    return caught.value.code


def test_the_statement_of_a_holder_has_its_fields():
    beat = c.Heartbeat(actor=WORKER, job_id=7, fence=FENCE, beat=NO_BEAT)
    body = encode_statement(holder_statement("8f2e", beat, WORKER, 2, counter=3, at=AT))
    assert body == canonical(OURS)
    assert read_statement(body) == Statement(
        ledger="8f2e",
        job_id=7,
        attempt=2,
        type=EventType.HEARTBEAT,
        actor=WORKER,
        at=AT,
        counter=3,
        payload_sha256=EMPTY_SHA256,
    )


def test_values_of_the_holder_are_in_its_statement():
    stall = c.Stall(actor=WORKER, job_id=7, fence=FENCE, error=b"1")
    found = read_statement(encode_statement(holder_statement("8f2e", stall, WORKER, 2, counter=3, at=AT)))
    assert (found.payload_sha256, found.reason) == (sha256(b'{"error":1}').hexdigest(), "WORKER_ERROR")


def test_the_statement_of_the_system_has_its_fields():
    event = EventRecord(
        7, 9, EventType.STALLED, AT, SYSTEM, 2, Status.RUNNING, Status.STALLED, "NO_HEARTBEAT", payload=b"{}", policy=Policy()
    )  # fmt: skip
    body = encode_ledger_statement("8f2e", event)
    found = read_statement(body)
    assert (found.actor, found.rev, found.counter, found.reason) == (SYSTEM, 9, None, "NO_HEARTBEAT")
    assert (found.policy, found.at, found.payload_sha256) == (Policy(), AT, sha256(b"{}").hexdigest())
    assert encode_statement(found) == body
    assert read_statement(encode_ledger_statement("8f2e", msgspec.structs.replace(event, at=AT + 1))).at == AT + 1


@pytest.mark.parametrize("trace", [{"counter": 1}, {"rev": 4}, {"counter": 1, "rev": 4}])
def test_the_statement_of_an_operator_has_its_fields(trace: dict[str, int]):
    fields = _put(_put(_put(OURS, "actor", "operator:ann"), "counter", None), "type", "cancel_requested") | {"attempt": 0}
    found = read_statement(canonical(fields | trace | {"reason": "fire drill"}))
    assert (found.actor, found.type, found.reason) == (OPERATOR, EventType.CANCEL_REQUESTED, "fire drill")


def test_a_heartbeat_in_the_form_for_robots_is_read():
    assert read_statement(canonical(SEED)) == Statement(
        ledger="8f2e",
        job_id=7,
        attempt=2,
        type=EventType.HEARTBEAT,
        actor=WORKER,
        at=AT,
        counter=3,
        stage="TASK",
        progress=3,
        assist_requested=False,
        shape="seed",
    )


def test_a_heartbeat_without_contents_is_accepted():
    bare = SEED | {"payload": {"jobId": 7, "robotId": "arm-1", "t": SEED["at"]}}
    found = read_statement(canonical(bare))
    assert (found.job_id, found.stage, found.progress, found.assist_requested) == (7, None, None, None)
    resumed = read_statement(canonical(bare | {"type": "JOB_EXECUTION_RESUMED"}))
    assert (resumed.type, resumed.actor) == (EventType.RESUMED, WORKER)


def test_a_number_that_json_cannot_hold_is_sent_as_a_text():
    assert read_statement(canonical(_put(SEED, "payload.jobId", str(2**63 - 1)))).job_id == 2**63 - 1
    assert read_statement(canonical(_put(OURS, "job", str(2**63 - 1)))).job_id == 2**63 - 1


def test_other_signed_bytes_are_not_statements():
    secret, body = SecretKey(b"\1" * 32), canonical(SEED)
    assert statement_message(body) == b"holdfast event v1\n" + body
    assert not verify(secret.public_key, statement_message(body), secret.sign(body))


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("v", 2),
        ("v", "1"),
        ("ledger", None),
        ("ledger", ""),
        ("ledger", 3),
        ("job", 0),
        ("job", "07"),
        ("job", True),
        ("attempt", 0),
        ("attempt", 2**31),
        ("type", "JOB_HEARTBEAT"),
        ("type", "claimed"),
        ("type", "started"),
        ("actor", "arm-1"),
        ("actor", "worker:arm-1"),
        ("actor", "worker:#boot-1"),
        ("actor", "worker:arm-1#"),
        ("actor", "worker: arm-1#boot-1"),
        ("actor", "client:shop"),
        ("actor", "system:ledger"),
        ("actor", "system:else"),
        ("actor", {"type": "robot", "id": "arm-1"}),
        ("counter", None),
        ("counter", -1),
        ("at", -1),
        ("at", "2026-01-26T00:00:00.000Z"),
        ("payload", None),
        ("payload", "00"),
        ("payload", EMPTY_SHA256.upper()),
        ("reason", ""),
        ("reason", "x" * 1_001),
        ("rev", 0),
        ("rev", 2**31),
        ("policy", {"lease_ttl_ms": "60"}),
        ("policy", {"more": 1}),
        ("more", 1),
        ("binding", SEED["binding"]),
    ],
)
def test_holdfasts_form_is_read_strictly(path: str, given: Any):
    read_statement(canonical(OURS))
    assert _code(canonical(_put(OURS, path, given))) in ("validation_error", "limit_exceeded")


def test_null_is_refused_for_a_missing_field():
    assert _code(canonical(OURS | {"reason": None})) == "validation_error"
    assert _code(canonical(OURS | {"rev": None})) == "validation_error"


@pytest.mark.parametrize("trace", [{"counter": 1, "rev": 4}, {"counter": 1}, {}])
def test_the_system_has_a_rev_and_no_counter(trace: dict[str, int]):
    fields = _put(_put(OURS, "actor", "system:ledger"), "counter", None)
    read_statement(canonical(fields | {"rev": 4}))
    assert _code(canonical(fields | trace)) == "validation_error"


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("type", "JOB_EXECUTION_STALLED"),
        ("type", "heartbeat"),
        ("type", "JOB_EXECUTION_RESUMED"),
        ("at", "2026-01-26T00:00:00.000000Z"),
        ("payload.t", "2026-01-26T00:00:00Z"),
        ("payload.t", None),
        ("at", None),
        ("actor.type", "server"),
        ("actor.id", "arm-2"),
        ("actor.more", 1),
        ("payload.robotId", "arm-2"),
        ("payload.jobId", "07"),
        ("payload.jobId", "-7"),
        ("payload.jobId", ""),
        ("payload.jobId", "9223372036854775808"),
        ("payload.jobId", 0),
        ("payload.jobId", True),
        ("payload.stage", ""),
        ("payload.stage", "x" * 201),
        ("payload.stage", 1),
        ("payload.progress", -1),
        ("payload.progress", True),
        ("payload.assistRequested", 0),
        ("payload.more", 1),
        ("binding", None),
        ("binding.ledger", None),
        ("binding.attempt", 0),
        ("binding.incarnation", ""),
        ("binding.incarnation", "boot#1"),
        ("binding.counter", "3"),
        ("binding.more", 1),
        ("keyId", "0" * 16),
        ("more", 1),
    ],
)
def test_the_form_for_robots_is_read_strictly(path: str, given: Any):
    read_statement(canonical(SEED))
    assert _code(canonical(_put(SEED, path, given))) in ("validation_error", "limit_exceeded")


def test_both_times_of_a_beat_are_checked():
    late = "2026-02-30T00:00:00Z"
    assert _code(canonical(_put(_put(SEED, "at", late), "payload.t", late))) == "validation_error"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 8_000,
        canonical(OURS) + b" ",
        canonical(OURS).replace(b":", b": "),
        canonical(OURS).replace(b'"v":1', b'"v":1.0'),
        canonical(OURS).replace(b'"v":1', b'"v":1,"v":1'),
        canonical(OURS).replace(b'"arm', b'"\\u0061rm').replace(b":arm", b":\\u0061rm"),
        msgspec.json.encode(OURS),
        msgspec.json.encode(OURS | {"at": 1e15}),
        msgspec.json.encode(OURS | {"at": 2**60}, order="sorted"),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_other_bytes_are_refused(body: bytes):
    assert _code(body) in ("validation_error", "limit_exceeded")


def test_a_statement_has_a_size_limit():
    assert _code(b" " * 8_193) == "limit_exceeded"
