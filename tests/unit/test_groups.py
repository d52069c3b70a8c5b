"""The rules of groups: counts, when changes are added to them, and follow-up jobs. The contract suite tests the verbs."""

from typing import Any

import msgspec
import pytest

from holdfast.core import limits
from holdfast.core.groups import (
    DEAD,
    FollowUp,
    GroupBody,
    GroupCounts,
    GroupRow,
    due_follow_ups,
    end_of,
    is_fold_due,
)
from holdfast.core.model import Status

FOLLOW_UP = FollowUp(msgspec.Raw(b'{"queue":"a","kind":"b","args":{}}'))
BOTH = GroupBody(then=FOLLOW_UP, on_dead=FOLLOW_UP)


def state(counts: GroupCounts, **fields: Any) -> GroupRow:
    return GroupRow._make([1, "g", "{}", 0, "ada", *[None] * 8, *counts])._replace(**fields)


def test_counts_are_added():
    counts = GroupCounts(5, 1, 1).plus(end_of(Status.CANCELLED, 2)).plus(end_of(Status.FAILED, -1))
    assert counts == GroupCounts(joined=5, succeeded=1, failed=0, cancelled=2)
    assert (counts.dead, counts.live) == (2, 2)
    assert {Status.FAILED, Status.CANCELLED, Status.DEAD_LETTERED} == DEAD


@pytest.mark.parametrize(
    ("counts", "added", "rows", "fields", "due"),
    [
        (GroupCounts(5), GroupCounts(), 0, {"closed_at": 1}, False),
        (GroupCounts(5), end_of(Status.SUCCEEDED, 4), 1, {"closed_at": 1}, False),
        (GroupCounts(5), end_of(Status.SUCCEEDED, 5), 1, {"closed_at": 1}, True),
        (GroupCounts(5), end_of(Status.SUCCEEDED, 5), 1, {}, False),
        (GroupCounts(5), end_of(Status.FAILED), 1, {}, True),
        (GroupCounts(5), end_of(Status.FAILED), 1, {"dead_at": 1}, False),
        (GroupCounts(500), end_of(Status.SUCCEEDED, 64), limits.GROUP_FOLD_ROWS, {}, True),
    ],
)
def test_when_changes_are_added(counts: GroupCounts, added: GroupCounts, rows: int, fields: dict[str, int], due: bool):
    assert is_fold_due(state(counts, **fields), added, rows) is due


@pytest.mark.parametrize(
    ("counts", "fields", "due"),
    [
        (GroupCounts(2, 2), {}, []),
        (GroupCounts(2, 2), {"closed_at": 1}, ["then"]),
        (GroupCounts(), {"closed_at": 1}, ["then"]),
        (GroupCounts(2, 1), {"closed_at": 1}, []),
        (GroupCounts(2, 2), {"closed_at": 1, "then_job": 9}, []),
        (GroupCounts(2, 2), {"closed_at": 1, "cancelled_at": 1}, []),
        (GroupCounts(2, 2), {"closed_at": 1, "last_error": "no"}, []),
        (GroupCounts(2, 1, 1), {"closed_at": 1}, ["on_dead"]),
        (GroupCounts(2, 0, 0, 1), {}, ["on_dead"]),
        (GroupCounts(2, 0, 0, 0, 1), {"on_dead_job": 9}, []),
    ],
)
def test_which_follow_up_jobs_are_due(counts: GroupCounts, fields: dict[str, int], due: list[str]):
    assert due_follow_ups(state(counts, **fields), BOTH) == due
    assert due_follow_ups(state(counts, **fields), GroupBody()) == []
