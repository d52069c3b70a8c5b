"""The rules of groups: counts, when changes are added to them, follow-up jobs, joining, and chains."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.decide import replay_command
from holdfast.core.groups import (
    DEAD,
    FollowUp,
    GroupBody,
    GroupCounts,
    GroupState,
    JoinedGroup,
    check_chain,
    check_children,
    check_join,
    due_follow_ups,
    end_of,
    is_done,
    is_fold_due,
    may_join,
    same_definition,
)
from holdfast.core.model import Actor, JobRecord, Role, Status
from holdfast.errors import Conflict, LimitExceeded, NotFound, ValidationError

FOLLOW_UP = FollowUp(msgspec.Raw(b'{"queue":"a","kind":"b","args":{}}'))
BOTH = GroupBody(then=FOLLOW_UP, on_dead=FOLLOW_UP)


def state(counts: GroupCounts, **fields: Any) -> GroupState:
    return GroupState(counts, None, None, None, None, None, None)._replace(**fields)


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


def test_a_group_is_done_when_it_is_closed_and_all_have_ended():
    assert is_done(GroupCounts(2, 1, 1), 1)
    assert not is_done(GroupCounts(2, 1, 1), None)
    assert not is_done(GroupCounts(2, 1), 1)


def test_who_may_join():
    group = JoinedGroup(7, "a", False, limits.GROUP_JOBS_MAX - 1, 0)
    assert check_join("a", group, 1) is group
    with pytest.raises(LimitExceeded):
        check_join("a", group, 2)
    with pytest.raises(Conflict):
        check_join("a", group._replace(is_closed=True), 1)
    with pytest.raises(NotFound):
        check_join("a", None, 1)


def test_chains_that_lead_back_or_are_too_long():
    joins = {"b": ["c", "d"], "c": ["d"], "d": [], "e": ["a"]}
    check_chain("a", ["b"], joins.__getitem__)
    check_chain("a", [], joins.__getitem__)
    with pytest.raises(ValidationError, match="a -> a"):
        check_chain("a", ["a"], joins.__getitem__)
    with pytest.raises(ValidationError, match="a -> e -> a"):
        check_chain("a", ["b", "e"], joins.__getitem__)
    with pytest.raises(LimitExceeded):
        check_chain("a", ["0"], lambda name: [str(int(name) + 1)])


def test_the_groups_that_follow_up_jobs_join():
    joining = FollowUp(msgspec.Raw(b'{"queue":"a","kind":"b","args":{},"group":"next"}'))
    assert list(GroupBody(then=joining, on_dead=FOLLOW_UP).joins()) == ["next"]
    assert list(GroupBody().joins()) == []


def test_definitions_are_compared_without_white_space():
    spaced = FollowUp(msgspec.Raw(b'{"kind": "b", "queue": "a", "args": {}}'))
    assert same_definition(GroupBody(then=FOLLOW_UP), GroupBody(then=spaced))
    assert not same_definition(GroupBody(then=FOLLOW_UP), GroupBody(on_dead=FOLLOW_UP))


def test_a_replay_is_in_the_group_of_its_job_if_it_takes_its_place():
    job = JobRecord(1, "q", "k", Status.FAILED, 4, 1, 0, 0, 0, 0, b"{}", "c", group="g")
    command = c.Replay(actor=Actor(Role.OPERATOR, "me"), job_id=1)
    assert replay_command(job, command).group == "g"
    assert replay_command(job, command, in_group=False).group is None


# Groups whose follow-up jobs join another group

TO_PARENT = FollowUp(msgspec.Raw(b'{"queue":"a","kind":"b","args":{},"group":"parent"}'))


@pytest.mark.parametrize(
    ("counts", "fields", "by_then", "by_on_dead"),
    [
        (GroupCounts(2, 1), {}, True, True),
        (GroupCounts(2, 2), {"closed_at": 1}, True, False),
        (GroupCounts(2, 2), {"closed_at": 1, "then_job": 7}, False, False),
        (GroupCounts(2, 1, 1), {"closed_at": 1}, True, True),
        (GroupCounts(2, 1, 1), {"closed_at": 1, "on_dead_job": 7}, True, False),
        (GroupCounts(2, 1, 1), {"closed_at": 1, "cancelled_at": 1}, False, False),
        (GroupCounts(2, 1), {"closed_at": 1, "cancelled_at": 1}, False, True),
    ],
)
def test_whether_a_follow_up_job_may_still_join_a_group(
    counts: GroupCounts, fields: dict[str, Any], by_then: bool, by_on_dead: bool
):
    found = state(counts, **fields)
    assert may_join(found, GroupBody(then=TO_PARENT), "parent") is by_then
    assert may_join(found, GroupBody(on_dead=TO_PARENT), "parent") is by_on_dead
    assert not may_join(found, GroupBody(then=TO_PARENT, on_dead=TO_PARENT), "other")
    assert not may_join(found, GroupBody(), "parent")


def test_a_group_that_waits_for_others_is_not_closed():
    check_children("parent", [], closed=False)
    with pytest.raises(Conflict) as caught:
        check_children("parent", ["a b"], closed=False)
    assert caught.value.message == "the group 'parent' waits for follow-up jobs of 1 group: 'a b'"
    assert caught.value.action.startswith("Close it when they are done.")
    with pytest.raises(Conflict) as caught:
        check_children("parent", [f"g{n}" for n in range(7)], closed=True)
    assert caught.value.message.endswith("7 groups: 'g0', 'g1', 'g2', 'g3', 'g4' and 2 more")
    assert caught.value.action.endswith("Cancel those groups: holdfast group cancel g0.")
