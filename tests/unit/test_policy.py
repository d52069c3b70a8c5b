"""Policies: their bounds, the combination of layers, and backoff."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.model import Policy
from holdfast.core.policy import (
    NO_SETTINGS,
    Settings,
    backoff_us,
    duration_ms,
    merge_settings,
    resolve,
    source_fields,
    with_ttl,
)
from holdfast.errors import HoldfastError


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (0, 0),
        (1, 1_000),
        (0.5, 500),
        (0.0004, 0),
        ("0ms", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        (timedelta(seconds=2), 2_000),
        (timedelta(microseconds=1_500), 2),
    ],
    ids=repr,
)
def test_durations_are_seconds_texts_or_timedeltas(given: Any, ms: int):
    assert duration_ms("x", given, 0, 86_400_000) == ms


@pytest.mark.parametrize("given", [-1, -0.001, 10.001, "11s", timedelta(days=1), float("nan"), float("inf"), -(10**400)], ids=str)
def test_durations_have_bounds(given: Any):
    with pytest.raises(HoldfastError) as caught:
        duration_ms("x", given, 0, 10_000)
    assert (caught.value.code, caught.value.context["limit"]) == ("limit_exceeded", [0, 10_000])


@pytest.mark.parametrize("given", [0, 10, "10s", timedelta(seconds=10)], ids=repr)
def test_a_bound_itself_is_within(given: Any):
    assert duration_ms("x", given, 0, 10_000) in (0, 10_000)


@pytest.mark.parametrize(
    ("ttl_ms", "interval_ms", "missed"),
    [(1_000, 1_000, 1), (2_000, 1_000, 2), (3_000, 1_000, 3), (60_000, 20_000, 3), (3_600_000, 1_200_000, 3), (1_999, 1_999, 1)],
)
def test_a_given_ttl_is_also_the_limit_of_silence(ttl_ms: int, interval_ms: int, missed: int):
    policy = with_ttl(Policy(), ttl_ms)
    assert (policy.lease_ttl_ms, policy.heartbeat_interval_ms, policy.missed_beats_max) == (ttl_ms, interval_ms, missed)
    assert policy.stall_after_ms <= policy.lease_ttl_ms


@pytest.mark.parametrize(
    ("policy", "ttl_ms", "grace_ms"),
    [
        (Policy(), 300_000, 300_000),
        (Policy(), 10_000, 30_000),
        (Policy(cancel_grace_ms=5_000), 300_000, 5_000),
        (resolve("warehouse", NO_SETTINGS, NO_SETTINGS, NO_SETTINGS), 10_000, 30_000),
    ],
)
def test_the_cancel_grace_covers_a_heartbeat_unless_it_is_set(policy: Policy, ttl_ms: int, grace_ms: int):
    assert with_ttl(policy, ttl_ms).cancel_grace_ms == grace_ms


@pytest.mark.parametrize(
    ("tries", "jitter", "us"),
    [(0, 1.0, 500_000), (1, 1.0, 500_000), (2, 1.0, 1_000_000), (7, 1.0, 32_000_000), (8, 1.0, 60_000_000),
     (9_999, 1.0, 60_000_000),
     (1, 0.5, 250_000), (1, 1.5, 750_000), (8, 0.5, 30_000_000)],
)  # fmt: skip
def test_backoff_doubles_up_to_its_ceiling_and_varies(tries: int, jitter: float, us: int):
    assert backoff_us(Policy(), tries, jitter) == us


# Operator and handler layers, and sources of values


def test_a_long_lease_of_a_handler_is_refused_if_an_operator_forbids_it():
    with pytest.raises(HoldfastError) as caught:
        merge_settings(Settings(lease_ttl_ms=7_200_000, lease_widened=True), Settings(lease_widened=False))
    assert caught.value.code == "limit_exceeded"


def _sources(*layers: Any) -> dict[str, tuple[Any, str]]:
    return {found.name: (found.value, found.source.value) for found in source_fields(*layers)}


def test_a_lease_that_is_raised_comes_from_no_layer():
    found = _sources(None, Settings(lease_ttl_ms=60_000), Settings(lease_ttl_ms=5_000, missed_beats_max=6), NO_SETTINGS)
    assert found["lease_ttl_ms"] == (60_000, "derived")


@pytest.mark.parametrize(
    ("declared", "by_kind", "by_tier", "expected"),
    [
        ("all", None, None, ("all", "handler")),
        ("all", "none", None, ("none", "operator_kind")),
        ("all", "liveness", "none", ("liveness", "operator_kind")),
        ("liveness", None, "all", ("all", "operator_tier")),
    ],
)
def test_signed_comes_from_the_strictest_layer(declared: str, by_kind: str | None, by_tier: str | None, expected: Any):
    found = _sources(None, Settings(signed=declared), Settings(signed=by_kind), Settings(signed=by_tier))
    assert found["signed"] == expected


def test_every_layer_that_sets_a_value_is_listed_nearest_first():
    [found] = [
        one
        for one in source_fields("t", Settings(attempts_max=7), Settings(attempts_max=2), Settings(attempts_max=3))
        if one.name == "attempts_max"
    ]
    assert list(found.layers.items()) == [("operator_tier", 3), ("operator_kind", 2), ("handler", 7)]
