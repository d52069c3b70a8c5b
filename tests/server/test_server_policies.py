"""Policies over HTTP."""

from typing import Any

import pytest

from holdfast import Ledger
from tests.support.server import Client


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
