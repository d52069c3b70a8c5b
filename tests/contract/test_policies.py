"""Policies: three layers, the nearest wins, resolved when a lease is issued."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Ledger, Policy
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, claim, claimed, queued, refused_without_trace, running

DEFAULTS = {
    "heartbeat_interval_ms": 10_000,
    "missed_beats_max": 3,
    "lease_ttl_ms": 60_000,
    "resume_window_ms": 0,
    "attempts_max": 5,
    "on_exhausted": "dead_letter",
    "backoff_base_ms": 500,
    "backoff_max_ms": 60_000,
    "cancel_grace_ms": 30_000,
    "progress_timeout_ms": None,
    "requires_operator_coverage": False,
    "signed": "none",
    "stall_after_ms": 30_000,
}


def _policy(ledger: Ledger, **options: Any) -> Policy:
    """The policy of a lease on such a job."""
    policy = ledger.get(claimed(ledger, **options).id).policy
    assert policy is not None
    return policy


def test_the_defaults_are_those_of_the_contract(ledger: Ledger):
    made = claimed(ledger)
    assert ledger.events(made.id)[-1].payload["policy"] == DEFAULTS


@pytest.mark.parametrize(
    ("tier", "interval_s"),
    [
        ("in_home", 30),
        ("managed_building", 60),
        ("hospitality", 60),
        ("office_after_hours", 60),
        ("submarine", 60),
        (None, 10),
    ],
)
def test_a_tier_has_its_own_defaults(ledger: Ledger, tier: str | None, interval_s: int):
    policy = _policy(ledger, tier=tier)
    assert policy.heartbeat_interval_ms == interval_s * 1_000
    assert policy.stall_after_ms == interval_s * 3_000
    assert policy.lease_ttl_ms == max(60_000, interval_s * 3_000)
    assert policy.resume_window_ms == (0 if tier is None else interval_s * 3_000)


def test_the_nearest_layer_wins(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2, missed_beats_max=2, cancel_grace=2)
    ledger.set_policy(tier="in_home", missed_beats_max=4, cancel_grace=4)
    policy = _policy(ledger, kind="walk", tier="in_home", policy={"cancel_grace": 8})
    assert (policy.attempts_max, policy.missed_beats_max, policy.cancel_grace_ms) == (2, 4, 8_000)


def test_a_kinds_policy_overrides_the_defaults_of_a_tier(ledger: Ledger):
    ledger.set_policy("walk", heartbeat_interval=5)
    policy = _policy(ledger, kind="walk", tier="in_home")
    assert (policy.heartbeat_interval_ms, policy.resume_window_ms) == (5_000, 15_000)
    assert _policy(ledger, kind="walk", tier="in_home", policy={"resume_window": 0}).resume_window_ms == 0


def test_fields_that_are_not_given_stay_as_they_were_set(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2, cancel_grace=2)
    ledger.set_policy("walk", cancel_grace=3)
    policy = _policy(ledger, kind="walk")
    assert (policy.attempts_max, policy.cancel_grace_ms) == (2, 3_000)


def test_a_lease_never_ends_before_stall_after(ledger: Ledger):
    assert _policy(ledger, policy={"heartbeat_interval": 40, "lease_ttl": 60}).lease_ttl_ms == 120_000


# When


def test_a_policy_set_after_the_enqueue_applies_at_the_claim(ledger: Ledger):
    made = queued(ledger, kind="walk")
    ledger.set_policy("walk", lease_ttl=120)
    claim(ledger, made.id)
    policy = ledger.get(made.id).policy
    assert policy is not None
    assert policy.lease_ttl_ms == 120_000


def test_a_lease_keeps_the_policy_it_was_issued_under(ledger: Ledger, clock: ManualClock):
    made = running(ledger, kind="walk")
    ledger.set_policy("walk", lease_ttl=600, heartbeat_interval=200)
    clock.advance(20)
    assert ledger.heartbeat(made.fence).lease_expires_at == clock.now() + timedelta(seconds=60)
    clock.advance(31)
    ledger.sweep()
    assert ledger.get(made.id).status == "queued"
    assert ledger.check(made.id) == []


def test_the_next_attempt_has_the_new_policy(ledger: Ledger):
    made = claimed(ledger, kind="walk")
    ledger.set_policy("walk", attempts_max=9)
    ledger.release(made.fence)
    assert ledger.claim_job(made.id, WORKER).attempts_max == 9


def test_both_ways_to_claim_issue_the_same_policy(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2)
    options: dict[str, Any] = {"kind": "walk", "tier": "in_home", "policy": {"cancel_grace": 9}}
    by_id = ledger.claim_job(queued(ledger, **options).id, WORKER)
    assert by_id.policy == _policy(ledger, **options)


# Bounds

EDGES: list[tuple[str, Any]] = [
    ("heartbeat_interval", 1),
    ("heartbeat_interval", "1h"),
    ("missed_beats_max", 1),
    ("lease_ttl", 1),
    ("lease_ttl", "1h"),
    ("resume_window", 0),
    ("attempts_max", 1),
    ("cancel_grace", 0),
    ("progress_timeout", timedelta(seconds=1)),
    ("backoff_base", "500ms"),
    ("requires_operator_coverage", True),
    ("signed", "all"),
]
PAST: list[tuple[str, Any]] = [
    ("heartbeat_interval", 0.999),
    ("heartbeat_interval", 3_600.001),
    ("missed_beats_max", 0),
    ("lease_ttl", 0.999),
    ("lease_ttl", 3_600.001),
    ("resume_window", -1),
    ("attempts_max", 0),
    ("cancel_grace", -1),
    ("progress_timeout", 0),
    ("backoff_base", float("nan")),
    ("backoff_max", float("inf")),
    ("lease_ttl", 10**400),
]
WRONG: list[tuple[str, Any]] = [
    ("heartbeat_interval", "soon"),
    ("heartbeat_interval", True),
    ("heartbeat_interval", [10]),
    ("missed_beats_max", 2.5),
    ("missed_beats_max", True),
    ("attempts_max", "5"),
    ("on_exhausted", "retry"),
    ("signed", "some"),
    ("requires_operator_coverage", 1),
    ("colour", "blue"),
    ("lease_ttl_ms", 60_000),
    ("lease_ttl_ms", None),
]


def test_a_field_may_be_set_to_its_bound(ledger: Ledger):
    for number, (name, value) in enumerate(EDGES):
        ledger.set_policy(f"walk-{number}", **{name: value})
        assert _policy(ledger, kind=f"walk-{number}") == _policy(ledger, policy={name: value})


@pytest.mark.parametrize(("cases", "code"), [(PAST, "limit_exceeded"), (WRONG, "validation_error")], ids=["past", "wrong"])
def test_a_field_past_its_bound_or_of_another_type_is_refused(ledger: Ledger, cases: list[tuple[str, Any]], code: str):
    for name, value in cases:
        with refused_without_trace(ledger, code):
            ledger.set_policy("walk", **{name: value})
        with refused_without_trace(ledger, code):
            ledger.enqueue("walk", policy={name: value})  # type: ignore[arg-type]
    assert _policy(ledger, kind="walk") == _policy(ledger)


def test_an_operator_may_widen_the_lease(ledger: Ledger):
    ledger.set_policy("walk", lease_ttl="2h", lease_widened=True)
    assert _policy(ledger, kind="walk").lease_ttl_ms == 7_200_000


def test_a_job_cannot_widen_its_own_lease(ledger: Ledger):
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.enqueue("walk", policy={"lease_ttl": "2h", "lease_widened": True})


@pytest.mark.parametrize("scope", [{}, {"kind": "a", "tier": "b"}], ids=str)
def test_a_policy_is_for_a_kind_or_for_a_tier(ledger: Ledger, scope):
    with refused_without_trace(ledger, "validation_error"):
        ledger.set_policy(**scope, attempts_max=2)


@pytest.mark.parametrize("given", [[], "fast", 7])
def test_a_jobs_policy_is_a_mapping(ledger: Ledger, given):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue("walk", policy=given)


# Reading back


def test_policies_are_read_back_by_kind_and_tier(ledger: Ledger):
    ledger.set_policy("index", lease_ttl="2m", attempts_max=3, requires_operator_coverage=False)
    ledger.set_policy("a", on_exhausted="fail")
    ledger.set_policy(tier="warehouse", heartbeat_interval="20s")
    assert ledger.policies() == {
        "kind": {"a": {"on_exhausted": "fail"},
                 "index": {"lease_ttl_ms": 120_000, "attempts_max": 3, "requires_operator_coverage": False}},
        "tier": {"warehouse": {"heartbeat_interval_ms": 20_000}},
    }  # fmt: skip


def test_fields_that_were_not_set_are_not_listed(ledger: Ledger):
    ledger.enqueue("index", tier="warehouse", policy={"attempts_max": 2})
    assert ledger.policies() == {"kind": {}, "tier": {}}


@pytest.mark.parametrize("scope", ["kind", "tier"])
def test_none_unsets_a_field(ledger: Ledger, scope: str):
    ledger.set_policy(**{scope: "index"}, lease_ttl="2m", attempts_max=3)
    ledger.set_policy(**{scope: "index"}, attempts_max=4, lease_ttl=None, signed=None)
    assert ledger.policies()[scope] == {"index": {"attempts_max": 4}}
    ledger.set_policy(**{scope: "index"}, attempts_max=None)
    assert ledger.policies() == {"kind": {}, "tier": {}}


def test_a_long_lease_is_refused_once_it_is_no_longer_allowed(ledger: Ledger):
    ledger.set_policy("index", lease_widened=True)
    ledger.set_policy("index", lease_ttl="2h")
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.set_policy("index", lease_widened=None)
    ledger.set_policy("index", lease_ttl=None, lease_widened=None)
    assert ledger.policies()["kind"] == {}


# What handlers declare


def test_a_declaration_applies_to_fields_that_no_operator_has_set(ledger: Ledger):
    ledger.declare_policy("walk", attempts_max=7, lease_ttl="90s")
    ledger.set_policy("walk", attempts_max=2)
    policy = _policy(ledger, kind="walk")
    assert (policy.attempts_max, policy.lease_ttl_ms) == (2, 90_000)
    assert _policy(ledger, kind="other") == Policy()


def test_a_declaration_overrides_a_tiers_defaults_but_not_its_policy(ledger: Ledger):
    ledger.declare_policy("walk", heartbeat_interval=5, attempts_max=7)
    ledger.set_policy(tier="in_home", attempts_max=4)
    policy = _policy(ledger, kind="walk", tier="in_home")
    assert (policy.heartbeat_interval_ms, policy.attempts_max) == (5_000, 4)


def test_a_newer_declaration_replaces_all_fields_of_the_older_one(ledger: Ledger):
    made = queued(ledger, kind="walk")
    ledger.declare_policy("walk", queue="feet", attempts_max=1, lease_ttl="90s", actor="w-1")
    ledger.declare_policy("walk", queue="legs", lease_ttl="80s", actor="w-2")
    claim(ledger, made.id)
    assert ledger.policy_of(made.id) == ledger.get(made.id).policy
    assert (ledger.policy_of(made.id).attempts_max, ledger.policy_of(made.id).lease_ttl_ms) == (5, 80_000)
    found = ledger.declarations()["walk"]
    assert (found.kind, found.queue, found.policy, found.declared_by) == ("walk", "legs", {"lease_ttl_ms": 80_000}, "w-2")
    assert found.declared_at == ledger.now()


def test_a_declaration_has_the_limits_and_labels_of_jobs(ledger: Ledger):
    ledger.declare_policy("walk", limits=["b", "a"], requires=["z", "y"])
    found = ledger.declarations()["walk"]
    assert (found.limits, found.requires) == ({"a": 1, "b": 1}, ("y", "z"))
    ledger.declare_policy("walk", limits={"a": 3})
    found = ledger.declarations()["walk"]
    assert (found.limits, found.requires) == ({"a": 3}, ())
    job = ledger.enqueue("walk")
    assert (job.limits, job.requires) == ({}, ())


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "holdfast.undo"},
        {"kind": ""},
        {"queue": "\0"},
        {"limits": "api"},
        {"limits": ["a", "a"]},
        {"requires": "gpu"},
        {"attempts_max": 0},
    ],
    ids=str,
)
def test_invalid_declarations_are_refused(ledger: Ledger, given: dict[str, Any]):
    with refused_without_trace(ledger, "limit_exceeded" if "attempts_max" in given else "validation_error"):
        ledger.declare_policy(**{"kind": "walk", **given})
    assert ledger.declarations() == {}


def test_a_field_that_an_operator_unset_has_the_handlers_value(ledger: Ledger):
    ledger.declare_policy("walk", attempts_max=7)
    ledger.set_policy("walk", attempts_max=2, lease_ttl="90s")
    ledger.set_policy("walk", attempts_max=None)
    policy = _policy(ledger, kind="walk")
    assert (policy.attempts_max, policy.lease_ttl_ms) == (7, 90_000)
    ledger.unset_policy("walk")
    assert _policy(ledger, kind="walk").lease_ttl_ms == 60_000
    assert ledger.policies() == {"kind": {}, "tier": {}}


def test_a_tiers_policy_can_be_changed_and_unset(ledger: Ledger):
    ledger.set_policy(tier="in_home", attempts_max=2)
    ledger.set_policy(tier="in_home", missed_beats_max=4)
    assert ledger.policies()["tier"] == {"in_home": {"attempts_max": 2, "missed_beats_max": 4}}
    ledger.unset_policy(tier="in_home")
    assert _policy(ledger, tier="in_home").attempts_max == 5


def test_the_declaration_of_a_kind_without_a_handler_can_be_removed(ledger: Ledger):
    ledger.declare_policy("walk", attempts_max=1)
    ledger.unset_policy("walk", declared=True)
    assert ledger.declarations() == {}
    assert _policy(ledger, kind="walk").attempts_max == 5


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kind": "a", "tier": "b"},
        {"tier": "b", "declared": True},
        {"kind": "a", "declared": 1},
    ],
    ids=str,
)
def test_an_invalid_removal_is_refused(ledger: Ledger, given: dict[str, Any]):
    ledger.set_policy("a", attempts_max=2)
    with refused_without_trace(ledger, "validation_error"):
        ledger.unset_policy(**given)
    assert ledger.policies()["kind"] == {"a": {"attempts_max": 2}}


def test_a_repeated_request_unsets_nothing_that_was_set_since(ledger: Ledger):
    ledger.set_policy("walk", attempts_max=2)
    ledger.unset_policy("walk", request_id="r-1")
    ledger.set_policy("walk", attempts_max=3)
    ledger.unset_policy("walk", request_id="r-1")
    assert ledger.policies()["kind"] == {"walk": {"attempts_max": 3}}


def test_each_value_has_its_source(ledger: Ledger):
    ledger.declare_policy("walk", attempts_max=7, missed_beats_max=2)
    ledger.set_policy("walk", missed_beats_max=4)
    ledger.set_policy(tier="in_home", backoff_base=1)
    found = {one.name: (one.value, one.source) for one in ledger.policy_sources("walk", tier="in_home")}
    assert found["attempts_max"] == (7, "handler")
    assert found["missed_beats_max"] == (4, "operator_kind")
    assert found["backoff_base_ms"] == (1_000, "operator_tier")
    assert found["heartbeat_interval_ms"] == (30_000, "tier")
    assert found["on_exhausted"] == ("dead_letter", "default")
    policy = _policy(ledger, kind="walk", tier="in_home")
    assert {name: value for name, (value, _) in found.items()} == {
        **{name: getattr(policy, name) for name in Policy.__struct_fields__},
        "stall_after_ms": policy.stall_after_ms,
    }


def test_the_sources_of_an_unknown_kind_are_the_defaults(ledger: Ledger):
    for found in (ledger.policy_sources(), ledger.policy_sources("unknown")):
        assert {one.source for one in found} == {"default", "derived"}
