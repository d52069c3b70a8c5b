"""Where a job stands that others depend on."""

import pytest

from holdfast.core.model import Status
from holdfast.core.waiting import Standing


@pytest.mark.parametrize("status", Status)
def test_only_a_success_is_what_was_waited_for(status: Status):
    standing = Standing(1, status, 1)
    assert standing.is_met == (status == "succeeded")
    assert standing.came_to_nothing == (status in ("failed", "cancelled", "dead_lettered"))
