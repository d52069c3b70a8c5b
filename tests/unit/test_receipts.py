"""Receipts, denials and the gate."""

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from holdfast import liveness
from holdfast.errors import GateDenied, HoldfastError, LimitExceeded, ValidationError
from holdfast.liveness import (
    HealthVerdict,
    LivenessDenialReason,
    LivenessGateDenial,
    LivenessHeartbeatReceiptV1,
    check_liveness_for_progression,
)

U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1
SURROGATE = "\ud800"
HEARTBEAT = LivenessHeartbeatReceiptV1(
    run_id="run-001",
    episode_id=bytes([1] * 32),
    emitted_at_tick=100,
    time_envelope_ref=bytes([2] * 32),
    health_verdict=HealthVerdict.HEALTHY,
    restart_count=0,
    max_restarts=3,
    uptime_ms=60_000,
    detail=None,
)

u32, u64 = st.integers(0, U32_MAX), st.integers(0, U64_MAX)
hashes = st.binary(min_size=32, max_size=32)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
receipts = st.builds(
    LivenessHeartbeatReceiptV1,
    run_id=texts,
    episode_id=hashes,
    emitted_at_tick=u64,
    time_envelope_ref=hashes,
    health_verdict=st.sampled_from(HealthVerdict),
    restart_count=u32,
    max_restarts=u32,
    uptime_ms=u64,
    detail=st.none() | texts,
)


def receipt(**fields: Any) -> LivenessHeartbeatReceiptV1:
    return msgspec.structs.replace(HEARTBEAT, **fields)


def denied(heartbeat: Any, current_tick: int = 105, max_age: int = 10) -> LivenessGateDenial:
    with pytest.raises(LivenessGateDenial) as caught:
        check_liveness_for_progression(heartbeat, current_tick, max_age)
    return caught.value


# The receipt


def test_a_receipt_is_written_as_json():
    assert json.loads(HEARTBEAT.to_json()) == {
        "run_id": "run-001",
        "episode_id": [1] * 32,
        "emitted_at_tick": 100,
        "time_envelope_ref": [2] * 32,
        "health_verdict": "healthy",
        "restart_count": 0,
        "max_restarts": 3,
        "uptime_ms": 60_000,
        "detail": None,
    }


@given(receipts)
def test_a_receipt_is_read_back_unchanged(heartbeat: LivenessHeartbeatReceiptV1):
    assert LivenessHeartbeatReceiptV1.from_json(heartbeat.to_json()) == heartbeat
    assert LivenessHeartbeatReceiptV1.from_json(heartbeat.to_json().encode()) == heartbeat


def test_a_detail_may_be_left_out():
    fields = HEARTBEAT.to_object()
    assert type(fields["health_verdict"]) is str
    del fields["detail"]
    assert LivenessHeartbeatReceiptV1.from_json(json.dumps(fields)) == HEARTBEAT


NOT_THESE: list[tuple[str, list[Any]]] = [
    ("run_id", ["é" * 129, "r" * 257, "\ud800", None, 1]),
    ("detail", ["é" * 257, "d" * 513, "\udfff", 1, []]),
    ("episode_id", [[1] * 31, [1] * 33, [256] + [1] * 31, [-1] + [1] * 31, [True] * 32, [1.0] * 32, "x" * 32, None]),
    ("time_envelope_ref", [[], [None] * 32]),
    ("health_verdict", ["HEALTHY", "hEalthy", "dead", 1, None, ["healthy"], {}]),
    ("emitted_at_tick", [-1, U64_MAX + 1, 10**20, 1.0, 1e3, True, "1", None]),
    ("uptime_ms", [-1, U64_MAX + 1, False]),
    ("restart_count", [-1, U32_MAX + 1, True, 0.0]),
    ("max_restarts", [-1, U32_MAX + 1, "3"]),
]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in NOT_THESE for value in values])
def test_json_with_a_wrong_value_is_refused(field: str, value: Any):
    with pytest.raises(HoldfastError) as caught:
        LivenessHeartbeatReceiptV1.from_json(json.dumps(HEARTBEAT.to_object() | {field: value}))
    assert caught.value.code in {"validation_error", "limit_exceeded"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1] + ',"more":1}',
        lambda text: text[:-1] + ',"run_id":"run-001"}',
        lambda text: text[:-1] + ',"\\ud800":1}',
        lambda text: text.replace('"uptime_ms":60000,', ""),
        lambda text: text.replace("60000", "NaN"),
        lambda text: text.replace("60000", "1" * 5_000),
        lambda text: f"[{text}]",
        lambda text: "null",
        lambda text: "",
        lambda text: text + text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace("run-001", SURROGATE),
        lambda text: text.replace("run-001", "r" * 70_000),
        lambda text: b"\xff" + text.encode(),
        lambda text: "[" * 10_000,
        json.loads,
    ],
)
def test_invalid_json_of_a_receipt_is_refused(spoil: Callable[[str], Any]):
    with pytest.raises((ValidationError, LimitExceeded)):
        LivenessHeartbeatReceiptV1.from_json(spoil(HEARTBEAT.to_json()))


@pytest.mark.parametrize(
    "fields",
    [
        {"run_id": 1},
        {"detail": b"d"},
        {"episode_id": b"short"},
        {"episode_id": [1] * 32},
        {"time_envelope_ref": bytes(33)},
        {"health_verdict": "healthy"},
        {"emitted_at_tick": U64_MAX + 1},
        {"emitted_at_tick": True},
        {"restart_count": U32_MAX + 1},
        {"max_restarts": -1},
        {"uptime_ms": 1.0},
    ],
)
def test_a_receipt_is_not_made_with_a_wrong_value(fields: dict[str, Any]):
    with pytest.raises((ValidationError, LimitExceeded)):
        receipt(**fields)


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({"run_id": "é" * 128, "detail": "é" * 256}, True),
        ({"run_id": "", "detail": ""}, True),
        ({"run_id": "é" * 128 + "r"}, False),
        ({"detail": "é" * 256 + "d"}, False),
        ({"run_id": SURROGATE}, False),
        ({"detail": SURROGATE}, False),
    ],
)
def test_bounds_are_counted_in_bytes(fields: dict[str, str], valid: bool):
    assert receipt(**fields).has_valid_bounds() is valid


def test_a_receipt_with_invalid_bounds_cannot_be_written():
    with pytest.raises(ValidationError):
        receipt(run_id="r" * 257).to_json()


# The gate


def test_a_fresh_healthy_receipt_passes():
    check_liveness_for_progression(HEARTBEAT, 105, 10)


@pytest.mark.parametrize("no_receipt", [None, {}, "healthy", HEARTBEAT.to_object()])
def test_a_missing_receipt_is_ambiguous(no_receipt: Any):
    assert denied(no_receipt).reason is LivenessDenialReason.AMBIGUOUS_STATE


@pytest.mark.parametrize("fields", [{"run_id": "r" * 257}, {"detail": "d" * 513}, {"detail": SURROGATE}])
def test_invalid_bounds_are_ambiguous_before_any_other_reason(fields: dict[str, str]):
    broken = receipt(**fields, health_verdict=HealthVerdict.CRASHED, restart_count=9)
    assert denied(broken, 10**6).reason is LivenessDenialReason.AMBIGUOUS_STATE


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (HealthVerdict.STALLED, LivenessDenialReason.UNHEALTHY_VERDICT),
        (HealthVerdict.CRASHED, LivenessDenialReason.UNHEALTHY_VERDICT),
        (HealthVerdict.AMBIGUOUS, LivenessDenialReason.AMBIGUOUS_STATE),
    ],
)
def test_the_verdict_is_checked_before_age_and_restarts(verdict: HealthVerdict, reason: LivenessDenialReason):
    assert denied(receipt(health_verdict=verdict, restart_count=9), 10**6).reason is reason


def test_a_denial_has_the_facts_of_the_receipt():
    assert denied(receipt(health_verdict=HealthVerdict.CRASHED, detail="exit code 9")).detail == "crashed: exit code 9"


def test_age_is_checked_before_restarts():
    assert denied(receipt(restart_count=9), 111).reason is LivenessDenialReason.STALE_HEARTBEAT


def test_a_receipt_from_the_future_is_checked_before_restarts():
    assert denied(receipt(restart_count=9), 89).reason is LivenessDenialReason.AMBIGUOUS_STATE


def test_too_many_restarts_are_denied():
    assert denied(receipt(restart_count=4)).reason is LivenessDenialReason.RESTART_LIMIT_EXCEEDED


@pytest.mark.parametrize("current_tick", [90, 100, 110])
def test_values_at_their_limit_pass(current_tick: int):
    check_liveness_for_progression(receipt(restart_count=3), current_tick, 10)


@pytest.mark.parametrize(
    ("emitted", "now", "age_max", "reason"),
    [
        (0, U64_MAX, U64_MAX, None),
        (U64_MAX, 0, U64_MAX, None),
        (0, U64_MAX, U64_MAX - 1, LivenessDenialReason.STALE_HEARTBEAT),
        (U64_MAX, 0, U64_MAX - 1, LivenessDenialReason.AMBIGUOUS_STATE),
        (U64_MAX, U64_MAX, 0, None),
    ],
)
def test_ticks_have_the_full_range(emitted: int, now: int, age_max: int, reason: LivenessDenialReason | None):
    heartbeat = receipt(emitted_at_tick=emitted)
    if reason is None:
        check_liveness_for_progression(heartbeat, now, age_max)
    else:
        assert denied(heartbeat, now, age_max).reason is reason


@pytest.mark.parametrize(("now", "age_max"), [(-1, 10), (U64_MAX + 1, 10), (105, -1), (True, 10), (105, 1.5)])
def test_invalid_ticks_are_refused(now: Any, age_max: Any):
    with pytest.raises((ValidationError, LimitExceeded)):
        check_liveness_for_progression(HEARTBEAT, now, age_max)


@given(receipts, u64, u64)
def test_only_healthy_fresh_receipts_within_their_restarts_pass(heartbeat: LivenessHeartbeatReceiptV1, now: int, most: int):
    good = (
        heartbeat.health_verdict == "healthy"
        and abs(now - heartbeat.emitted_at_tick) <= most
        and heartbeat.restart_count <= heartbeat.max_restarts
    )
    try:
        check_liveness_for_progression(heartbeat, now, most)
    except LivenessGateDenial:
        assert not good
    else:
        assert good


# The denial


@pytest.mark.parametrize(
    ("detail", "kept"),
    [("d" * 513, "d" * 512), ("é" * 257, "é" * 256), ("d" + "é" * 256, "d" + "é" * 255), ("x" + "🦀" * 128, "x" + "🦀" * 127)],
)
def test_a_long_detail_is_cut_between_characters(detail: str, kept: str):
    assert LivenessGateDenial.new(LivenessDenialReason.STALE_HEARTBEAT, detail).detail == kept


def test_a_lone_surrogate_in_a_detail_becomes_a_question_mark():
    assert LivenessGateDenial(LivenessDenialReason.STALE_HEARTBEAT, f"a{SURROGATE}b").detail == "a?b"


@pytest.mark.parametrize(("reason", "detail"), [("stale_heartbeat", "d"), (LivenessDenialReason.STALE_HEARTBEAT, None)])
def test_a_denial_is_not_made_with_a_wrong_value(reason: Any, detail: Any):
    with pytest.raises(ValidationError):
        LivenessGateDenial(reason, detail)


@given(st.sampled_from(LivenessDenialReason), st.text())
def test_a_denial_is_read_back_unchanged(reason: LivenessDenialReason, detail: str):
    denial = LivenessGateDenial.new(reason, detail)
    assert LivenessGateDenial.from_json(denial.to_json()) == denial
    assert hash(LivenessGateDenial.from_json(denial.to_json())) == hash(denial)


@pytest.mark.parametrize("verdict", HealthVerdict)
def test_a_verdict_is_read_in_both_spellings_and_written_in_one(verdict: HealthVerdict):
    made = receipt(health_verdict=verdict)
    other = made.to_object() | {"health_verdict": verdict.name.capitalize()}
    assert LivenessHeartbeatReceiptV1.from_json(json.dumps(other)) == made
    assert json.loads(made.to_json())["health_verdict"] == verdict.name.lower()


@pytest.mark.parametrize(
    ("spelling", "reason"),
    [
        ("UnhealthyVerdict", LivenessDenialReason.UNHEALTHY_VERDICT),
        ("StaleHeartbeat", LivenessDenialReason.STALE_HEARTBEAT),
        ("RestartLimitExceeded", LivenessDenialReason.RESTART_LIMIT_EXCEEDED),
        ("AmbiguousState", LivenessDenialReason.AMBIGUOUS_STATE),
    ],
)
def test_a_denial_is_read_in_both_spellings_and_written_in_one(spelling: str, reason: LivenessDenialReason):
    denial = LivenessGateDenial.from_json(f'{{"reason":"{spelling}","detail":"d"}}')
    assert denial == LivenessGateDenial(reason, "d")
    assert denial.to_json() == f'{{"reason":"{reason.value}","detail":"d"}}'


def test_a_denial_is_written_as_json():
    denial = LivenessGateDenial(LivenessDenialReason.UNHEALTHY_VERDICT, "crashed")
    assert denial.to_json() == '{"reason":"unhealthy_verdict","detail":"crashed"}'
    assert denial != LivenessGateDenial(LivenessDenialReason.UNHEALTHY_VERDICT, "stalled")


@pytest.mark.parametrize(
    "text",
    [
        '{"reason":"unhealthy_verdict"}',
        '{"reason":"unhealthyVerdict","detail":""}',
        '{"reason":"Unhealthy_Verdict","detail":""}',
        '{"reason":"unhealthy_verdict","detail":null}',
        '{"reason":"unhealthy_verdict","detail":"","more":1}',
        '{"reason":"unhealthy_verdict","detail":"","detail":""}',
        f'{{"reason":"unhealthy_verdict","detail":"{"d" * 513}"}}',
    ],
)
def test_invalid_json_of_a_denial_is_refused(text: str):
    with pytest.raises((ValidationError, LimitExceeded)):
        LivenessGateDenial.from_json(text)


def test_a_denial_is_the_refusal_with_the_stable_code():
    denial = denied(None)
    assert denial.code == GateDenied.code == "gate_denied"
    assert issubclass(LivenessGateDenial, GateDenied)
    assert denial.context == {"reason": "ambiguous_state", "detail": "there is no receipt"}


def test_the_limits_are_those_of_the_specification():
    assert (liveness.MAX_HEARTBEAT_DETAIL_LENGTH, liveness.MAX_RUN_ID_LENGTH) == (512, 256)
    assert liveness.MAX_LIVENESS_DENIAL_DETAIL_LENGTH == 512
    assert (liveness.MAX_RESTARTS_LIMIT, liveness.MAX_CIRCUIT_BREAKER_FAILURES) == (1_000, 100)
