"""Policies: their bounds, the combination of layers, and backoff."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.model import Fence, Policy
from holdfast.core.policy import (
    NO_SETTINGS,
    Settings,
    backoff_us,
    change_settings,
    duration_ms,
    lowers_signed,
    merge_settings,
    read_fields,
    read_settings,
    resolve,
    source_fields,
    tier_settings,
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


@pytest.mark.parametrize(
    "given", [True, None, "", "5", "s", "5 s", "-5s", "1e3s", "5S", "5s\n", "1.s", ".5s", "5w", [5], b"5s"], ids=repr
)
def test_values_that_are_not_durations_are_refused(given: Any):
    with pytest.raises(HoldfastError) as caught:
        duration_ms("x", given, 0, 86_400_000)
    assert caught.value.code == "validation_error"


@pytest.mark.parametrize("given", [-1, -0.001, 10.001, "11s", timedelta(days=1), float("nan"), float("inf"), -(10**400)], ids=str)
def test_durations_have_bounds(given: Any):
    with pytest.raises(HoldfastError) as caught:
        duration_ms("x", given, 0, 10_000)
    assert (caught.value.code, caught.value.context["limit"]) == ("limit_exceeded", [0, 10_000])


@pytest.mark.parametrize("given", [0, 10, "10s", timedelta(seconds=10)], ids=repr)
def test_a_bound_itself_is_within(given: Any):
    assert duration_ms("x", given, 0, 10_000) in (0, 10_000)


def test_settings_accept_the_public_names():
    layer = read_settings(
        {
            "heartbeat_interval": 5,
            "missed_beats_max": 2,
            "lease_ttl": "90s",
            "on_exhausted": "fail",
            "requires_operator_coverage": True,
            "attempts_max": None,
        }
    )
    assert layer == Settings(
        heartbeat_interval_ms=5_000,
        missed_beats_max=2,
        lease_ttl_ms=90_000,
        on_exhausted="fail",
        requires_operator_coverage=True,
    )


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("missed_beats_max", 101, "limit_exceeded"),
        ("attempts_max", 1_001, "limit_exceeded"),
        ("attempts_max", True, "validation_error"),
        ("on_exhausted", "retry", "validation_error"),
        ("signed", None, None),
        ("signed", "maybe", "validation_error"),
        ("requires_operator_coverage", "yes", "validation_error"),
        ("colour", 1, "validation_error"),
        ("lease_ttl", "2h", "limit_exceeded"),
        ("lease_ttl", "25h", "limit_exceeded"),
    ],
)
def test_settings_have_bounds(name: str, value: Any, code: str | None):
    if code is None:
        assert read_settings({name: value}) == NO_SETTINGS
        return
    with pytest.raises(HoldfastError) as caught:
        read_settings({name: value})
    assert caught.value.code == code


def test_an_operator_may_widen_a_lease_up_to_a_day():
    assert read_settings({"lease_ttl": "24h", "lease_widened": True}).lease_ttl_ms == 86_400_000


@pytest.mark.parametrize(
    ("tier", "ms"),
    [
        (None, None),
        ("in_home", 30_000),
        ("hospitality", 60_000),
        ("managed_building", 60_000),
        ("office_after_hours", 60_000),
        ("moon", 60_000),
    ],
)
def test_tiers_have_their_own_intervals(tier: str | None, ms: int | None):
    assert tier_settings(tier).heartbeat_interval_ms == ms


LAYERS: list[tuple[str, str | None, Settings, Settings, Settings, Policy]] = [
    ("nothing set", None, NO_SETTINGS, NO_SETTINGS, NO_SETTINGS, Policy()),
    (
        "a tier",
        "in_home",
        NO_SETTINGS,
        NO_SETTINGS,
        NO_SETTINGS,
        Policy(heartbeat_interval_ms=30_000, lease_ttl_ms=90_000, resume_window_ms=90_000, cancel_grace_ms=90_000),
    ),
    ("a kind", None, Settings(attempts_max=2), NO_SETTINGS, NO_SETTINGS, Policy(attempts_max=2)),
    (
        "a kind over a tier's own numbers",
        "in_home",
        Settings(heartbeat_interval_ms=5_000),
        NO_SETTINGS,
        NO_SETTINGS,
        Policy(heartbeat_interval_ms=5_000, resume_window_ms=15_000),
    ),
    (
        "a tier over a kind",
        "in_home",
        Settings(heartbeat_interval_ms=5_000, attempts_max=2),
        Settings(heartbeat_interval_ms=4_000),
        NO_SETTINGS,
        Policy(heartbeat_interval_ms=4_000, attempts_max=2, resume_window_ms=12_000),
    ),
    (
        "a job over all",
        "in_home",
        Settings(attempts_max=2),
        Settings(attempts_max=3),
        Settings(attempts_max=4, resume_window_ms=7, heartbeat_interval_ms=1_000),
        Policy(attempts_max=4, resume_window_ms=7, heartbeat_interval_ms=1_000),
    ),
    (
        "a window of its own",
        "in_home",
        Settings(resume_window_ms=0),
        NO_SETTINGS,
        NO_SETTINGS,
        Policy(heartbeat_interval_ms=30_000, lease_ttl_ms=90_000, resume_window_ms=0, cancel_grace_ms=90_000),
    ),
    (
        "a lease too short",
        None,
        Settings(lease_ttl_ms=5_000),
        NO_SETTINGS,
        NO_SETTINGS,
        Policy(lease_ttl_ms=30_000),
    ),
    (
        "a job that would have less signed",
        "in_home",
        Settings(signed="liveness", heartbeat_interval_ms=5_000),
        Settings(signed="all"),
        Settings(signed="none"),
        Policy(signed="all", heartbeat_interval_ms=5_000, resume_window_ms=15_000),
    ),
    (
        "a job that would have more signed",
        None,
        Settings(signed="liveness"),
        NO_SETTINGS,
        Settings(signed="all"),
        Policy(signed="all"),
    ),
    (
        "a wide lease",
        None,
        Settings(lease_ttl_ms=7_200_000, lease_widened=True),
        NO_SETTINGS,
        NO_SETTINGS,
        Policy(lease_ttl_ms=7_200_000),
    ),
]


@pytest.mark.parametrize(("name", "tier", "kind", "by_tier", "job", "expected"), LAYERS, ids=[layer[0] for layer in LAYERS])
def test_the_nearest_layer_wins(name: str, tier: str | None, kind: Settings, by_tier: Settings, job: Settings, expected: Policy):
    assert resolve(tier, kind, by_tier, job) == expected


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


@pytest.mark.parametrize("signed", ["none", "liveness", "all"])
def test_the_suffix_of_a_token_has_the_signed_policy(signed: str):
    assert Fence(1, 1, "abc" + Policy(signed=signed).token_tail).signed == signed


def test_a_change_keeps_the_other_fields():
    before = Settings(signed="all", attempts_max=2, cancel_grace_ms=5_000)
    changes = read_fields({"attempts_max": 3, "signed": None})
    assert change_settings(before, changes) == Settings(attempts_max=3, cancel_grace_ms=5_000)


@pytest.mark.parametrize("change", [False, None])
def test_a_long_lease_is_not_kept_without_the_field_that_allows_it(change: bool | None):
    with pytest.raises(HoldfastError) as caught:
        change_settings(Settings(lease_ttl_ms=7_200_000, lease_widened=True), read_fields({"lease_widened": change}))
    assert caught.value.code == "limit_exceeded"


@pytest.mark.parametrize(
    ("before", "after", "lowers"),
    [(None, None, False), ("none", None, False), (None, "all", False), ("liveness", "all", False), ("all", "all", False),
     ("all", "liveness", True), ("all", None, True), ("liveness", "none", True)],
)  # fmt: skip
def test_lowering_the_signed_policy_is_recognised(before: str | None, after: str | None, lowers: bool):
    assert lowers_signed(Settings(signed=before), Settings(signed=after)) is lowers


# Operator and handler layers, and sources of values


def test_an_operator_overrides_a_handler_field_by_field():
    declared, by_operator = Settings(attempts_max=7, lease_ttl_ms=90_000), Settings(attempts_max=2, signed="all")
    assert merge_settings(declared, by_operator) == Settings(attempts_max=2, lease_ttl_ms=90_000, signed="all")


def test_a_long_lease_of_a_handler_is_refused_if_an_operator_forbids_it():
    with pytest.raises(HoldfastError) as caught:
        merge_settings(Settings(lease_ttl_ms=7_200_000, lease_widened=True), Settings(lease_widened=False))
    assert caught.value.code == "limit_exceeded"


@pytest.mark.parametrize("name", ["lease_ttl_ms", "colour", 7, None], ids=str)
def test_a_field_that_does_not_exist_is_not_unset(name: Any):
    with pytest.raises(HoldfastError) as caught:
        read_fields({name: None})
    assert caught.value.code == "validation_error"


def _sources(*layers: Any) -> dict[str, tuple[Any, str]]:
    return {found.name: (found.value, found.source.value) for found in source_fields(*layers)}


def test_without_settings_every_value_is_a_default():
    found = _sources(None, NO_SETTINGS, NO_SETTINGS, NO_SETTINGS)
    assert found.pop("stall_after_ms") == (30_000, "derived")
    assert found.keys() == set(Policy.__struct_fields__)
    assert {source for _, source in found.values()} == {"default"}


def test_each_value_names_its_layer():
    found = _sources(
        "in_home",
        Settings(attempts_max=7, missed_beats_max=2, backoff_base_ms=1),
        Settings(missed_beats_max=4, backoff_base_ms=2),
        Settings(backoff_base_ms=3),
    )
    assert found["attempts_max"] == (7, "handler")
    assert found["missed_beats_max"] == (4, "operator_kind")
    assert found["backoff_base_ms"] == (3, "operator_tier")
    assert found["heartbeat_interval_ms"] == (30_000, "tier")
    assert found["resume_window_ms"] == (120_000, "derived")
    assert found["cancel_grace_ms"] == (120_000, "derived")
    assert found["lease_ttl_ms"] == (120_000, "derived")
    assert found["on_exhausted"] == ("dead_letter", "default")


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
