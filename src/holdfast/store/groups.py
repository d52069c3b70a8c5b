"""Groups of jobs: their rows, the jobs that join and end, and the changes that their counts lack."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.commands import Enqueue
from holdfast.core.doctor.model import GroupHealth
from holdfast.core.groups import (
    FollowUpName,
    GroupBody,
    GroupCounts,
    GroupRow,
    JoinedGroup,
    check_join,
    due_follow_ups,
    end_of,
    is_fold_due,
    may_join,
)
from holdfast.core.model import TERMINAL, EventRecord, Micros, Status
from holdfast.store.statement_session import StatementSession

_encode = msgspec.json.Encoder().encode


_COLUMNS = len(GroupRow._fields)


class GroupPlace(NamedTuple):
    """The job that a group counts for a job and its replays."""

    job_id: int
    group_id: int
    status: str


class PendingChanges(NamedTuple):
    """Changes that the counts of a group lack, and how many rows they are."""

    counts: GroupCounts
    rows: int


class ChildGroup(NamedTuple):
    """A group whose follow-up job may still join another group."""

    name: str
    is_due: bool
    """A follow-up job is to be made now: the process that ended the last job has not done so yet."""


NOTHING_PENDING = PendingChanges(GroupCounts(), 0)


def ends_job(events: Sequence[EventRecord]) -> bool:
    """Return whether these events of one job end it."""
    return any(event.to_status in TERMINAL and event.from_status not in TERMINAL for event in events)


class SqlGroups(StatementSession):
    changed_groups: set[int]
    """Groups to look at after the commit: their counts may have to be brought up to date."""

    # Joining and ending

    def join_groups(self, items: Sequence[Enqueue]) -> Mapping[str | None, int]:
        """Return the ids of the groups that these jobs join. Until the transaction ends, none of them can be closed.

        Raise an error if a group does not exist, is closed or full.
        """
        joining = Counter(item.group for item in items if item.group is not None and item.replay_of is None)
        if not joining:
            return {}
        found = self.joinable_groups(sorted(joining))
        groups = [check_join(name, found.get(name), joining[name]) for name in sorted(joining)]
        self.changed_groups.update(group.id for group in groups if group.rows >= limits.GROUP_FOLD_ROWS)
        return {group.name: group.id for group in groups}

    def joinable_groups(self, names: Sequence[str]) -> dict[str, JoinedGroup]:
        """Return those of these groups that exist. Until the transaction ends, none of them can be closed."""
        return {row.name: row for row in self.records(JoinedGroup, "join_groups", names=self._list(names))}

    def note_joined(self, groups: Mapping[str | None, int], items: Sequence[Enqueue]) -> None:
        """Note that these new jobs have joined their groups."""
        if groups:
            joined = Counter(groups[item.group] for item in items if item.group in groups)
            self._add_changes({group_id: GroupCounts(joined=count) for group_id, count in joined.items()})

    def note_ended(self, ids: Iterable[int]) -> None:
        """Note for their groups that these jobs have ended. Their rows are saved already."""
        self.changed_groups.update(self.values("note_ended", ids=self._list(ids)))

    def _add_changes(self, changes: Mapping[int, GroupCounts]) -> None:
        self.each("add_group_changes", [{"group_id": id_, **change._asdict()} for id_, change in changes.items()])

    def group_place(self, job_id: int) -> GroupPlace | None:
        """Return the place in a group of a job, which one of its replays may have taken."""
        return self.record(GroupPlace, "group_place", job_id=job_id)

    def take_group_place(self, place: GroupPlace, job_id: int) -> None:
        """Let a replay take the place of an ended job in its group."""
        self.rows("leave_group", job_id=place.job_id)
        self.rows("enter_group", job_id=job_id, group_id=place.group_id)
        self._add_changes({place.group_id: end_of(Status(place.status), -1)})

    # Groups

    def find_group(self, name: str) -> GroupRow | None:
        return self.record(GroupRow, "find_group", name=name)

    def lock_group(self, name: str) -> GroupRow | None:
        """Return a group, locked until the transaction ends. Wait for transactions in which jobs join it."""
        return self.record(GroupRow, "lock_group", name=name)

    def take_group(self, group_id: int) -> GroupRow | None:
        """Return a group, locked against other changes of its row. None if another transaction has locked it."""
        return self.record(GroupRow, "take_group", group_id=group_id)

    def add_group(self, name: str, body: GroupBody, by: str) -> None:
        """Make a group, unless there is one of this name."""
        joins = {"then_joins": body.then_joins, "on_dead_joins": body.on_dead_joins}
        self.rows("add_group", name=name, body=_encode(body).decode(), made_at=self.now(), made_by=by, **joins)

    def children(self, name: str) -> list[ChildGroup]:
        """Return the groups whose follow-up jobs may still join a group, by name."""
        rows = self.records(GroupRow, "joining_groups", name=name)
        pending = self.pending_changes([row.id for row in rows])
        found = [(row, row.decoded(), row.plus(pending.get(row.id, NOTHING_PENDING).counts)) for row in rows]
        return [
            ChildGroup(row.name, bool(due_follow_ups(state, body))) for row, body, state in found if may_join(state, body, name)
        ]

    def groups(self, after: str, limit: int, *, unfinished: bool) -> list[GroupRow]:
        """Return groups by name, all or only those that are not done."""
        return self.records(GroupRow, "groups", after=after, limit=limit, finished=not unfinished)

    def troubled_groups(self, before: Micros, limit: int) -> list[GroupHealth]:
        """Return groups that need attention. Open groups are among them only if they were made before a time.

        A group that waits for follow-up jobs of other groups is not among them: those are, if they need attention.
        """
        rows = self.records(GroupRow, "troubled_groups", before_at=before, limit=limit)
        waiting = {row.name for row in rows if row.closed_at is None and row.last_error is None and self.children(row.name)}
        return [
            GroupHealth(
                name=row.name,
                jobs=row.joined,
                dead=row.counts.dead,
                is_open=row.closed_at is None,
                has_told=row.on_dead_job is not None,
                last_error=row.last_error,
            )
            for row in rows
            if row.name not in waiting and (row.decoded().then is not None or row.last_error is not None)
        ]

    def count_unfinished_groups(self) -> int:
        return int(self.value("count_unfinished_groups"))

    def set_group_closed(self, group_id: int, by: str, *, cancelled: bool) -> None:
        """Close a group, if it is open, and forget the refusal of its follow-up job. Look after the commit what is due."""
        self.rows("set_group_closed", group_id=group_id, closed_at=self.now(), closed_by=by, cancelled=cancelled)
        self._look_again(group_id)

    def uncancel_group(self, group_id: int) -> None:
        """Let a cancelled group make its follow-up job after all. Look after the commit whether it is due."""
        self.rows("uncancel_group", group_id=group_id)
        self._look_again(group_id)

    def _look_again(self, group_id: int) -> None:
        """Add an empty change, so that the sweep looks if this process does not."""
        self._add_changes({group_id: GroupCounts()})
        self.changed_groups.add(group_id)

    def group_jobs(self, group_id: int, statuses: Sequence[str], after: int, limit: int, *, discarded: bool = True) -> list[int]:
        """Return the jobs that a group counts, by id. A replay is in the place of the job that it repeats."""
        chosen = {"statuses": self._list(statuses), "discarded": discarded}
        return self.values("group_jobs", group_id=group_id, after=after, limit=limit, **chosen)

    def live_statuses(self, group_id: int) -> dict[str, int]:
        """Return how many jobs of a group are in each status that is not an end."""
        return dict(self.rows("live_statuses", group_id=group_id))

    # Counts

    def pending_changes(self, ids: Sequence[int]) -> dict[int, PendingChanges]:
        """Return the changes that the counts of these groups lack."""
        rows = self.rows("pending_changes", ids=self._list(ids))
        return {id_: PendingChanges(GroupCounts(*counts), size) for id_, size, *counts in rows}

    def due_groups(self, ids: Sequence[int]) -> list[int]:
        """Return those of these groups whose changes must be added to their counts now."""
        due = []
        for row in self.rows("changed_groups", ids=self._list(ids)):
            group, (size, *changes) = GroupRow(*row[:_COLUMNS]), row[_COLUMNS:]
            if is_fold_due(group, GroupCounts(*changes), size):
                due.append(group.id)
        return due

    def changed_group_ids(self, limit: int) -> list[int]:
        """Return groups whose counts lack changes."""
        return self.values("changed_group_ids", limit=limit)

    def take_group_changes(self, group_id: int) -> GroupCounts:
        """Delete the changes that the counts of a group lack, and return their sum. The group must be locked."""
        rows = self.rows("take_group_changes", group_id=group_id)
        return GroupCounts(*map(sum, zip(*rows, strict=True))) if rows else GroupCounts()

    def save_counts(
        self,
        group_id: int,
        counts: GroupCounts,
        *,
        dead_at: Micros | None,
        done_at: Micros | None,
        made: Mapping[FollowUpName, int],
        last_error: str | None,
    ) -> None:
        values: dict[str, Any] = {"then_job": made.get("then"), "on_dead_job": made.get("on_dead"), "last_error": last_error}
        self.rows("save_counts", group_id=group_id, dead_at=dead_at, done_at=done_at, **values, **counts._asdict())
        self.changed_groups.add(group_id)

    def prune_groups(self, before: Micros, limit: int) -> int:
        """Delete groups that were done before a time and of which no job is left. Return how many."""
        return len(self.rows("prune_groups", before_at=before, limit=limit))
