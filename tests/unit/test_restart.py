"""The restart controller."""

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from holdfast.errors import HoldfastError, LimitExceeded, ValidationError
from holdfast.liveness import (
    Allow,
    CircuitBreakerFailuresExceedsLimit,
    Deny,
    MaxRestartsExceedsLimit,
    RestartController,
    RestartDecision,
    RestartPolicyConfig,
    RestartPolicyConfigError,
    TerminalReason,
)

U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1
POLICY = RestartPolicyConfig(
    max_restarts=3,
    window_ticks=50,
    circuit_breaker_threshold_ticks=5,
    circuit_breaker_max_failures=3,
    stall_timeout_ticks=10,
)
LIMIT, BREAKER = Deny(TerminalReason.RESTART_LIMIT_EXCEEDED), Deny(TerminalReason.CIRCUIT_BREAKER_OPEN)


def policy(**fields: Any) -> RestartPolicyConfig:
    return msgspec.structs.replace(POLICY, **fields)


def decisions(config: RestartPolicyConfig, *ticks: int) -> list[RestartDecision]:
    controller = RestartController(config)
    return [controller.record_restart(tick) for tick in ticks]


# The policy


def test_a_policy_within_its_limits_is_valid():
    policy(max_restarts=1_000, circuit_breaker_max_failures=100).validate()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"max_restarts": 1_001}, MaxRestartsExceedsLimit(1_001, 1_000)),
        ({"max_restarts": U32_MAX, "circuit_breaker_max_failures": 101}, MaxRestartsExceedsLimit(U32_MAX, 1_000)),
        ({"circuit_breaker_max_failures": 101}, CircuitBreakerFailuresExceedsLimit(101, 100)),
    ],
)
def test_a_policy_past_a_limit_is_refused(fields: dict[str, int], error: RestartPolicyConfigError):
    for refuses in (RestartPolicyConfig.validate, RestartController):
        with pytest.raises(RestartPolicyConfigError) as caught:
            refuses(policy(**fields))
        assert caught.value == error and hash(caught.value) == hash(error)
        assert (caught.value.actual, caught.value.limit) == (error.actual, error.limit)
    assert error.code == "limit_exceeded"


def test_errors_of_two_classes_differ():
    assert MaxRestartsExceedsLimit(101, 100) != CircuitBreakerFailuresExceedsLimit(101, 100)


@pytest.mark.parametrize("field", POLICY.__struct_fields__)
@pytest.mark.parametrize("value", [-1, U64_MAX + 1, True, 1.0, "1", None])
def test_a_policy_must_have_integers(field: str, value: Any):
    with pytest.raises((ValidationError, LimitExceeded)):
        policy(**{field: value})


@pytest.mark.parametrize("field", ["max_restarts", "circuit_breaker_max_failures"])
def test_counts_have_32_bits(field: str):
    with pytest.raises(LimitExceeded):
        policy(**{field: U32_MAX + 1})


def test_a_policy_is_written_and_read_as_json():
    assert json.loads(POLICY.to_json()) == msgspec.structs.asdict(POLICY)
    assert RestartPolicyConfig.from_json(POLICY.to_json()) == POLICY
    with pytest.raises(ValidationError):
        RestartPolicyConfig.from_json('{"max_restarts":1}')


# The controller


def test_the_example_of_the_specification_is_reproduced():
    controller = RestartController(POLICY)
    assert controller.terminal_reason() is None
    assert controller.record_restart(100) == RestartDecision.Allow(attempt=1)
    assert controller.record_terminal(TerminalReason.CLEAN_EXIT) == RestartDecision.Deny(reason=TerminalReason.CLEAN_EXIT)
    assert controller.record_restart(200) == RestartDecision.Deny(reason=TerminalReason.CLEAN_EXIT)
    assert controller.terminal_reason() is TerminalReason.CLEAN_EXIT


def test_more_restarts_than_the_window_allows_are_denied():
    assert decisions(policy(window_ticks=100), 0, 10, 20, 30, 10_000) == [Allow(1), Allow(2), Allow(3), LIMIT, LIMIT]


def test_restarts_before_the_window_are_forgotten():
    assert decisions(POLICY, 0, 20, 40, 60) == [Allow(1), Allow(2), Allow(3), Allow(3)]


def test_a_restart_at_the_edge_of_the_window_counts():
    assert decisions(policy(max_restarts=1), 0, 51) == [Allow(1), Allow(1)]
    assert decisions(policy(max_restarts=1), 0, 50) == [Allow(1), LIMIT]


def test_the_breaker_opens_at_its_maximum_and_stays_open():
    controller = RestartController(policy(max_restarts=9))
    assert [controller.record_restart(tick) for tick in (10, 12)] == [Allow(1), Allow(2)]
    assert (controller.circuit_breaker_open, controller.terminal_reason()) == (False, None)
    assert [controller.record_restart(tick) for tick in (15, 10_000)] == [BREAKER, BREAKER]
    assert (controller.circuit_breaker_open, controller.terminal_reason()) == (True, TerminalReason.CIRCUIT_BREAKER_OPEN)


def test_the_edge_of_the_breaker_counts():
    assert decisions(POLICY, 10, 12, 15)[-1] == BREAKER
    assert decisions(POLICY, 10, 12, 16)[-1] == Allow(3)


def test_the_breaker_is_checked_before_the_limit():
    assert decisions(policy(max_restarts=0, circuit_breaker_max_failures=1), 10) == [BREAKER]


def test_a_breaker_of_zero_is_open_at_once():
    assert decisions(policy(circuit_breaker_max_failures=0), 10) == [BREAKER]


def test_a_limit_of_zero_allows_no_restart():
    assert decisions(policy(max_restarts=0), 10) == [LIMIT]


def test_a_breaker_counts_only_within_the_window():
    assert decisions(policy(circuit_breaker_threshold_ticks=1_000), 0, 51, 102, 153)[-1] == Allow(1)


def test_a_clock_that_steps_back_allows_no_more_restarts():
    assert decisions(policy(max_restarts=2), 1_000, 500, 400) == [Allow(1), Allow(2), BREAKER]


def test_the_first_terminal_reason_stays():
    controller = RestartController(POLICY)
    first = controller.record_terminal(TerminalReason.OPERATOR_SHUTDOWN)
    assert controller.record_terminal(TerminalReason.CIRCUIT_BREAKER_OPEN) == first
    assert not controller.circuit_breaker_open


@pytest.mark.parametrize(
    ("last", "now", "stalled"), [(0, 10, False), (0, 11, True), (11, 0, False), (0, U64_MAX, True), (U64_MAX, 0, False)]
)
def test_a_stall_is_a_gap_longer_than_the_timeout(last: int, now: int, stalled: bool):
    assert RestartController(POLICY).check_stall(last, now) is stalled


def test_invalid_ticks_and_reasons_are_refused_and_change_nothing():
    controller = RestartController(POLICY)
    before = controller.to_json()
    for bad in (-1, U64_MAX + 1, True, 1.0, None):
        with pytest.raises(HoldfastError):
            controller.record_restart(bad)  # type: ignore[arg-type]
        with pytest.raises(HoldfastError):
            controller.check_stall(0, bad)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        controller.record_terminal("clean_exit")  # type: ignore[arg-type]
    assert controller.to_json() == before


def test_the_controller_keeps_a_limited_number_of_restarts():
    controller = RestartController(policy(max_restarts=1_000, window_ticks=U64_MAX, circuit_breaker_threshold_ticks=0))
    for tick in range(1_100):
        controller.record_restart(tick)
    assert len(controller.restart_ticks) == 1_000
    assert RestartController.from_json(controller.to_json()).to_json() == controller.to_json()


# Saved state


def test_a_controller_is_saved_and_restored():
    controller = RestartController(POLICY)
    controller.record_restart(100)
    controller.record_terminal(TerminalReason.STALL_TIMEOUT)
    assert json.loads(controller.to_json()) == {
        "config": msgspec.structs.asdict(POLICY),
        "restart_ticks": [100],
        "terminal_reason": "stall_timeout",
    }
    again = RestartController.from_json(controller.to_json())
    assert again.config == POLICY and again.restart_ticks == (100,)
    assert again.record_restart(101) == Deny(TerminalReason.STALL_TIMEOUT)


def test_a_saved_controller_may_be_restored_with_another_policy():
    controller = RestartController(POLICY)
    controller.record_restart(100)
    assert RestartController.from_json(controller.to_json(), policy(max_restarts=1)).record_restart(120) == LIMIT
    with pytest.raises(RestartPolicyConfigError):
        RestartController.from_json(controller.to_json(), policy(max_restarts=1_001))


KEPT: dict[str, Any] = {"config": msgspec.structs.asdict(POLICY), "restart_ticks": [], "terminal_reason": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"config": None},
        {"config": {}},
        {"config": KEPT["config"] | {"more": 1}},
        {"config": KEPT["config"] | {"max_restarts": 1_001}},
        {"restart_ticks": None},
        {"restart_ticks": [0] * 1_001},
        {"restart_ticks": [-1]},
        {"restart_ticks": [True]},
        {"restart_ticks": [U64_MAX + 1]},
        {"terminal_reason": "CLEAN_EXIT"},
        {"terminal_reason": 0},
        {"more": 1},
    ],
)
def test_invalid_saved_state_is_refused(fields: dict[str, Any]):
    with pytest.raises((ValidationError, LimitExceeded)):
        RestartController.from_json(json.dumps(KEPT | fields))


# Decisions


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Allow(1), '{"allow":{"attempt":1}}'),
        (Allow(U32_MAX), '{"allow":{"attempt":4294967295}}'),
        *((Deny(reason), f'{{"deny":{{"reason":"{reason.value}"}}}}') for reason in TerminalReason),
    ],
)
def test_a_decision_is_written_as_json(decision: RestartDecision, text: str):
    assert decision.to_json() == text
    assert RestartDecision.from_json(text) == decision


TERMINAL_REASONS = {
    "CleanExit": TerminalReason.CLEAN_EXIT,
    "RestartLimitExceeded": TerminalReason.RESTART_LIMIT_EXCEEDED,
    "CircuitBreakerOpen": TerminalReason.CIRCUIT_BREAKER_OPEN,
    "StallTimeout": TerminalReason.STALL_TIMEOUT,
    "OperatorShutdown": TerminalReason.OPERATOR_SHUTDOWN,
    "UnrecoverableError": TerminalReason.UNRECOVERABLE_ERROR,
}


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ('{"Allow":{"attempt":1}}', Allow(1)),
        *((f'{{"Deny":{{"reason":"{spelling}"}}}}', Deny(reason)) for spelling, reason in TERMINAL_REASONS.items()),
    ],
)
def test_a_decision_is_read_in_both_spellings_and_written_in_one(text: str, decision: RestartDecision):
    assert RestartDecision.from_json(text) == decision
    assert decision.to_json() == RestartDecision.from_json(decision.to_json()).to_json() != text


@pytest.mark.parametrize(("spelling", "reason"), TERMINAL_REASONS.items())
def test_a_saved_reason_is_read_in_both_spellings(spelling: str, reason: TerminalReason):
    kept = RestartController.from_json(json.dumps(KEPT | {"terminal_reason": spelling}))
    assert kept.terminal_reason() is reason
    assert json.loads(kept.to_json())["terminal_reason"] == reason.value


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '"allow"',
        '{"allow":{"attempt":1},"deny":{"reason":"clean_exit"}}',
        '{"allow":1}',
        '{"allow":{}}',
        '{"allow":{"attempt":1,"more":1}}',
        '{"allow":{"attempt":1,"attempt":1}}',
        '{"allow":{"attempt":4294967296}}',
        '{"allow":{"attempt":-1}}',
        '{"allow":{"attempt":true}}',
        '{"deny":{"reason":"cleanExit"}}',
        '{"allow":{"attempt":1},"Allow":{"attempt":1}}',
        '{"ALLOW":{"attempt":1}}',
        '{"deny":{"reason":null}}',
        '{"other":{}}',
    ],
)
def test_invalid_json_of_a_decision_is_refused(text: str):
    with pytest.raises((ValidationError, LimitExceeded)):
        RestartDecision.from_json(text)


def test_a_decision_is_not_made_with_a_wrong_value():
    with pytest.raises(LimitExceeded):
        Allow(-1)
    with pytest.raises(ValidationError):
        Deny("clean_exit")  # type: ignore[arg-type]


# Comparison with a model


class Model:
    """A model that keeps all restarts, except those outside the window of a later one."""

    def __init__(self, config: RestartPolicyConfig) -> None:
        self.config = config
        self.calls: list[int] = []
        self.over: TerminalReason | None = None

    def restart(self, now: int) -> RestartDecision:
        if self.over is None:
            config = self.config
            self.calls.append(now)
            known = [tick for i, tick in enumerate(self.calls[:-1]) if max(self.calls[i + 1 :]) - tick <= config.window_ticks]
            recent = [tick for tick in known if now - tick <= config.circuit_breaker_threshold_ticks]
            if 1 + len(recent) >= config.circuit_breaker_max_failures:
                self.over = TerminalReason.CIRCUIT_BREAKER_OPEN
            elif 1 + len(known) > config.max_restarts:
                self.over = TerminalReason.RESTART_LIMIT_EXCEEDED
            else:
                return Allow(1 + len(known))
        assert self.over is not None
        return Deny(self.over)


near_ticks = st.integers(0, 30) | st.integers(U64_MAX - 30, U64_MAX)
ticks = near_ticks | st.integers(0, U64_MAX)
spans = st.integers(0, 20) | st.integers(0, U64_MAX)
policies = st.builds(
    RestartPolicyConfig,
    max_restarts=st.integers(0, 8) | st.just(1_000),
    window_ticks=spans,
    circuit_breaker_threshold_ticks=spans,
    circuit_breaker_max_failures=st.integers(0, 6) | st.just(100),
    stall_timeout_ticks=spans,
)


@given(policies, st.lists(ticks, max_size=20), st.booleans())
def test_the_controller_agrees_with_the_model(config: RestartPolicyConfig, at: list[int], forward: bool):
    controller, model = RestartController(config), Model(config)
    for tick in sorted(at) if forward else at:
        controller = RestartController.from_json(controller.to_json())
        assert controller.record_restart(tick) == model.restart(tick)
        assert controller.terminal_reason() is model.over


@given(policies, ticks, ticks)
def test_stalls_have_the_full_range(config: RestartPolicyConfig, last: int, now: int):
    assert RestartController(config).check_stall(last, now) is (max(0, now - last) > config.stall_timeout_ticks)
