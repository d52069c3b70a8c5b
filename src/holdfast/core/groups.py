"""Groups of jobs: what is counted, when a count is brought up to date, and which follow-up jobs are due.

A group's row has counts. The statements that let jobs join or end do not change it: each adds a row with what it changed. Now and
then these rows are added to the group's row and deleted: they are folded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.core import limits, payloads
from holdfast.core.model import Micros, Status
from holdfast.core.text import pluralize
from holdfast.errors import Conflict, LimitExceeded, NotFound, ValidationError

FollowUpName = Literal["then", "on_dead"]

ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.DEAD_LETTERED)
"""The statuses that a group counts, in the order of the fields of `GroupCounts`."""
DEAD = frozenset(ENDED) - {Status.SUCCEEDED}
"""A job of a group is dead if it has ended in one of these. They are the same that make a dependency fail."""
LIVE = (Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.STALLED)


class GroupCounts(NamedTuple):
    """How many jobs have joined a group, and how many of them have ended in which status. As a change, it may be negative."""

    joined: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    dead_lettered: int = 0

    def plus(self, other: "GroupCounts") -> "GroupCounts":
        return GroupCounts(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def dead(self) -> int:
        """Jobs that have ended without success."""
        return self.failed + self.cancelled + self.dead_lettered

    @property
    def live(self) -> int:
        """Jobs that have not ended."""
        return self.joined - self.succeeded - self.dead


def end_of(status: Status, count: int = 1) -> GroupCounts:
    """Return the change that `count` ends in this status are. A negative count takes ends back."""
    return GroupCounts(**{status.value: count})


class FollowUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that a group makes later."""

    job: msgspec.Raw
    """The payload of its `enqueued` event."""
    correlation_id: str | None = None
    trace_id: str | None = None

    def decoded(self) -> payloads.EnqueuedPayload:
        return payloads.decode(payloads.EnqueuedPayload, bytes(self.job))


class GroupBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a group as JSON: its follow-up jobs."""

    then: FollowUp | None = None
    on_dead: FollowUp | None = None

    @property
    def then_joins(self) -> str | None:
        """The group that `then` joins, if any."""
        return None if self.then is None else self.then.decoded().group

    @property
    def on_dead_joins(self) -> str | None:
        """The group that `on_dead` joins, if any."""
        return None if self.on_dead is None else self.on_dead.decoded().group

    def joins(self) -> Iterator[str]:
        """Yield the names of the groups that the follow-up jobs join."""
        yield from (name for name in (self.then_joins, self.on_dead_joins) if name is not None)


_bodies = msgspec.json.Decoder(GroupBody)


class GroupRow(NamedTuple):
    """What is stored of a group. Changes that are not folded yet are not in its counts."""

    id: int
    name: str
    body: str
    created_at: Micros
    created_by: str
    closed_at: Micros | None
    closed_by: str | None
    cancelled_at: Micros | None
    dead_at: Micros | None
    """When the first dead job was folded in."""
    done_at: Micros | None
    then_job: int | None
    on_dead_job: int | None
    last_error: str | None
    """Why a follow-up job was refused. No other is made until the group is closed again."""
    joined: int
    succeeded: int
    failed: int
    cancelled: int
    dead_lettered: int

    def decoded(self) -> GroupBody:
        return _bodies.decode(self.body)

    @property
    def counts(self) -> GroupCounts:
        return GroupCounts(self.joined, self.succeeded, self.failed, self.cancelled, self.dead_lettered)

    def plus(self, changes: GroupCounts) -> "GroupRow":
        """Return the row with these changes in its counts."""
        return self._replace(**self.counts.plus(changes)._asdict())


def is_fold_due(row: GroupRow, added: GroupCounts, rows: int) -> bool:
    """Return whether to fold now: there are many rows, the first job has died, or the last job of a closed group has ended."""
    if rows == 0:
        return False
    counts = row.counts.plus(added)
    is_last = row.closed_at is not None and counts.live <= 0
    return rows >= limits.GROUP_FOLD_ROWS or is_last or (row.dead_at is None and counts.dead > 0)


def is_done(counts: GroupCounts, closed_at: Micros | None) -> bool:
    """Return whether no job can join any more and all have ended."""
    return closed_at is not None and counts.live == 0


def due_follow_ups(row: GroupRow, body: GroupBody) -> list[FollowUpName]:
    """Return the follow-up jobs to make now. Each is made once. A cancelled group makes no `then`."""
    if row.last_error is not None:
        return []
    counts, due = row.counts, list[FollowUpName]()
    if body.on_dead is not None and row.on_dead_job is None and counts.dead > 0:
        due.append("on_dead")
    has_all = is_done(counts, row.closed_at) and counts.dead == 0
    if body.then is not None and row.then_job is None and has_all and row.cancelled_at is None:
        due.append("then")
    return due


def is_settled(row: GroupRow, body: GroupBody) -> bool:
    """Return whether a group is done and its follow-up jobs are made, as far as they are due."""
    return is_done(row.counts, row.closed_at) and not due_follow_ups(row, body)


def may_join(row: GroupRow, body: GroupBody, name: str) -> bool:
    """Return whether a follow-up job that is not made yet may still join the group `name`.

    Jobs that did not succeed may be replayed, so `then` may come as long as its group is not cancelled.
    """
    is_over = is_done(row.counts, row.closed_at)
    by_then = body.then_joins == name and row.then_job is None and row.cancelled_at is None
    is_on_dead_due = not is_over or (row.counts.dead > 0 and row.cancelled_at is None)
    return by_then or (body.on_dead_joins == name and row.on_dead_job is None and is_on_dead_due)


def check_children(name: str, children: Sequence[str], *, closed: bool) -> None:
    """Raise Conflict if follow-up jobs of these groups may still join a group that is to be closed, or is closed already."""
    if not children:
        return
    from holdfast.core.explain.formatting import quote_argument

    named = children[: limits.BLOCKERS_NAMED_MAX]
    more = "" if len(named) == len(children) else f" and {len(children) - len(named):,} more"
    groups = f"{pluralize(len(children), 'group')}: {', '.join(map(repr, named))}{more}"
    cancel = f"holdfast group cancel {quote_argument(children[0])}"
    action = f"Close it when they are done. Replay those with failed jobs, and cancel those that are not needed: {cancel}."
    if closed:
        action = f"It is closed, so they cannot join it any more. Cancel those groups: {cancel}."
    raise Conflict(f"the group {name!r} waits for follow-up jobs of {groups}", action=action, group=name, waits_for=list(named))


class JoinedGroup(NamedTuple):
    """A group that jobs are about to join."""

    id: int
    name: str
    is_closed: bool
    joined: int
    rows: int
    """Changes that are not folded yet."""


def closed_group(name: str, what: str) -> Conflict:
    return Conflict(f"the group {name!r} is closed: no {what} can join it", action="Make another group.", group=name)


def check_join(name: str, found: JoinedGroup | None, count: int) -> JoinedGroup:
    """Return the group that `count` jobs may join. Raise an error if there is none, or it is closed or full."""
    if found is None:
        raise unknown_group(name)
    if found.is_closed:
        raise closed_group(name, "job")
    if found.joined + count > limits.GROUP_JOBS_MAX:
        raise LimitExceeded(
            f"the group {name!r} would have more than {limits.GROUP_JOBS_MAX} jobs: use another group",
            field="group",
            limit=limits.GROUP_JOBS_MAX,
            group=name,
        )
    return found


def unknown_group(name: str) -> NotFound:
    return NotFound(
        f"there is no group {name!r}", action="Check the name, or make the group: holdfast group add NAME.", group=name
    )


def check_chain(name: str, first: Iterable[str], joins: Callable[[str], Iterable[str]]) -> None:
    """Raise an error if the follow-up jobs of a new group lead back to it, or if too many groups follow one another.

    `first` are the groups that its follow-up jobs join. `joins` returns the same of another group.
    """
    before = dict.fromkeys(first, name)
    reached = list(before)
    for _ in range(limits.GROUP_CHAIN_MAX - 1):
        if name in before:
            raise ValidationError(f"the follow-up jobs lead back to the group: {_path(name, before)}", field="group", group=name)
        new = [(after, one) for one in reached for after in joins(one) if after not in before]
        before.update(new)
        reached = [after for after, _ in new]
        if not reached:
            return
    limit = limits.GROUP_CHAIN_MAX
    raise LimitExceeded(f"more than {limit} groups would follow one another", field="group", limit=limit)


def _path(name: str, before: dict[str, str]) -> str:
    path = [name]
    while len(path) == 1 or path[-1] != name:
        path.append(before[path[-1]])
    return " -> ".join(reversed(path))


def same_definition(one: GroupBody, other: GroupBody) -> bool:
    """Return whether two groups make the same follow-up jobs. White space and the order of keys in arguments do not count."""
    return bool(_plain(one) == _plain(other))


def _plain(body: GroupBody) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))
