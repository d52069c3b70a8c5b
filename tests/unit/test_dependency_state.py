"""The state of a dependency."""

import pytest

from holdfast.core.dependencies import DependencyState
from holdfast.core.model import Status


@pytest.mark.parametrize("status", Status)
def test_only_a_success_satisfies_a_dependency(status: Status):
    standing = DependencyState(1, status, 1)
    assert standing.is_met == (status == "succeeded")
    assert standing.has_failed == (status in ("failed", "cancelled", "dead_lettered"))
