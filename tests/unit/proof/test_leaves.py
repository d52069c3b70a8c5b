"""Leaves: what exactly is hashed."""

import json
from hashlib import sha256

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model import SYSTEM, Actor, EventRecord, EventType, Policy, Role, Status
from holdfast.core.payloads import BeatPayload
from holdfast.proof.leaves import event_leaf, key_leaf, payload_sha256
from tests.unit.proof.trees import event_leaf_of

STALLED = EventRecord(
    job_id=7,
    rev=9,
    type=EventType.STALLED,
    received_at=100,
    actor=SYSTEM,
    attempt=2,
    from_status=Status.RUNNING,
    to_status=Status.STALLED,
    reason="NO_HEARTBEAT",
    request_id="r-1",
    cause="c-1",
    payload=b'{"last_beat_at":5}',
    policy=Policy(),
    at=99,
    pos=12,
    correlation_id="corr",
    trace_id="trace",
    key_id="0123456789abcdef",
    signature=b"\1" * 64,
    statement=b"{}",
)
ENQUEUED = EventRecord(
    7, 1, EventType.ENQUEUED, 100, Actor(Role.CLIENT, "shop"), 0, None, Status.QUEUED, pos=1, correlation_id="corr"
)


def test_the_leaf_of_a_signed_event_is_as_documented():
    assert json.loads(event_leaf_of(STALLED)) == [
        "event", 1, 12, 7, 9, "stalled", 100, 99, "system:ledger", 2, "running", "stalled", "NO_HEARTBEAT", "r-1", "c-1",
        sha256(b'{"last_beat_at":5}').hexdigest(), msgspec.json.encode(Policy()).decode(), None, None, "0123456789abcdef",
        "01" * 64, sha256(b"{}").hexdigest(),
    ]  # fmt: skip


def test_the_leaf_of_a_plain_event_is_as_documented():
    assert event_leaf_of(ENQUEUED) == (
        b'["event",1,1,7,1,"enqueued",100,100,"client:shop",0,null,"queued",null,null,null,null,null,"corr",null,null,null,null]'
    )


def test_a_policy_is_hashed_as_stored():
    assert json.loads(event_leaf_of(STALLED, '{"older":1}'))[16] == '{"older":1}'


def test_a_pruned_beat_keeps_its_leaf():
    beat = msgspec.structs.replace(STALLED, type=EventType.HEARTBEAT, payload=BeatPayload(stage="S", progress=1).encode())
    pruned = BeatPayload(pruned=sha256(beat.payload or b"").hexdigest()).encode()
    assert event_leaf_of(msgspec.structs.replace(beat, payload=pruned)) == event_leaf_of(beat)


@pytest.mark.parametrize("extra", [b" ", b',"stage":"lies"'])
def test_only_an_exact_pruned_payload_counts_as_pruned(extra: bytes):
    pruned = b'{"pruned":"' + b"0" * 64 + b'"' + extra + b"}"
    assert payload_sha256("heartbeat", pruned) == sha256(pruned).hexdigest()


def test_only_beats_can_be_pruned():
    pruned = BeatPayload(pruned="0" * 64).encode()
    assert payload_sha256("heartbeat", pruned) == "0" * 64
    assert payload_sha256("succeeded", pruned) == sha256(pruned).hexdigest()


def test_the_leaf_of_a_key_is_as_documented():
    found = key_leaf(
        3, "enrolled", "0123456789abcdef", "worker", "arm-1", b"\2" * 32, 100, "operator:ann", "fedcba9876543210", b"\3" * 64
    )
    assert json.loads(found) == [
        "key", 1, 3, "enrolled", "0123456789abcdef", "worker", "arm-1", "02" * 32, 100, "operator:ann",
        "fedcba9876543210", "03" * 64
    ]  # fmt: skip
    assert found == rfc8785.dumps(json.loads(found))


TEXT = st.none() | st.text(max_size=6)


@given(TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(0, 2**53 - 1))
def test_leaves_are_canonical(reason: str, request: str, cause: str, correlation: str, policy: str, pos: int):
    row = (pos, 7, 9, "enqueued", 100, None, "client:shop", 2, None, "queued", reason, request, cause, None, policy, correlation)
    leaf = event_leaf((*row, reason, None, None, None))
    assert leaf == rfc8785.dumps(json.loads(leaf))
