"""Policies over HTTP."""

from typing import Any

import pytest

from holdfast import Ledger
from tests.support.server import Client


@pytest.mark.parametrize("whose", ["kinds", "tiers"])
def test_a_patch_changes_what_is_given_and_null_unsets(admin: Client, ledger: Ledger, whose: str) -> None:
    path, scope = f"/v1/policies/{whose}/k", whose.removesuffix("s")
    assert admin.send("PATCH", path, {"attempts_max": 2, "lease_ttl": "90s"}).status == 200
    answer = admin.send("PATCH", path, {"attempts_max": None, "missed_beats_max": 4})
    found = {one["name"]: (one["value"], one["source"]) for one in answer.data["fields"]}
    assert found["missed_beats_max"] == (4, f"operator_{scope}")
    assert found["attempts_max"] == (5, "default")
    assert ledger.policies()[scope] == {"k": {"lease_ttl_ms": 90_000, "missed_beats_max": 4}}


def test_a_delete_removes_all_fields_or_the_declaration(admin: Client, ledger: Ledger) -> None:
    ledger.declare_policy("k", attempts_max=7)
    ledger.set_policy("k", attempts_max=2, missed_beats_max=4)
    assert admin.send("DELETE", "/v1/policies/kinds/k?declared=true").status == 200
    assert ledger.declarations() == {} and ledger.policies()["kind"] == {"k": {"attempts_max": 2, "missed_beats_max": 4}}
    assert admin.send("DELETE", "/v1/policies/kinds/k").status == 200
    assert ledger.policies() == {"kind": {}, "tier": {}}


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("PUT", "/v1/policies/kinds/k", {"attempts_max": 3}, 405),
        ("DELETE", "/v1/policies/kinds/k?fields=attempts_max", None, 400),
        ("DELETE", "/v1/policies/tiers/k?declared=true", None, 400),
        ("PATCH", "/v1/policies/kinds/k", {"colour": None}, 400),
        ("PATCH", "/v1/policies/kinds/k", {"actor": None}, 400),
        ("PATCH", "/v1/policies/queues/k", {"attempts_max": 3}, 404),
    ],
)
def test_what_is_refused_changes_nothing(admin: Client, ledger: Ledger, method: str, target: str, body: Any, status: int) -> None:
    ledger.set_policy("k", attempts_max=2)
    assert admin.send(method, target, body).status == status
    assert ledger.policies() == {"kind": {"k": {"attempts_max": 2}}, "tier": {}}
