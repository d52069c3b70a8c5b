"""Verbs for groups of jobs: make them, read their counts, wait for them, and close, cancel and replay them."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.groups import (
    DEAD,
    LIVE,
    FollowUp,
    FollowUpName,
    GroupBody,
    GroupRow,
    check_chain,
    check_children,
    closed_group,
    is_settled,
    same_definition,
    unknown_group,
)
from holdfast.core.model import Actor, Role, Status
from holdfast.errors import Conflict, HoldfastError, NotFound, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import public_job
from holdfast.ledger.public import Job, public_record
from holdfast.ledger.verbs.declarations import DeclarationVerb, declared_item, with_defaults
from holdfast.ledger.verbs.on_jobs import OnJobsVerb
from holdfast.store.groups import NOTHING_PENDING, ChildGroup, PendingChanges
from holdfast.store.rows import chunks
from holdfast.store.session import Session

REFUSALS_SHOWN_MAX = 100


class GroupRecord(msgspec.Struct, frozen=True):
    """A group of jobs: its counts, and its follow-up jobs."""

    name: str
    created_at: datetime
    created_by: str
    closed_at: datetime | None
    """When the last job could join. None if jobs can still join."""
    closed_by: str | None
    cancelled_at: datetime | None
    done: bool
    """The group is closed, all its jobs have ended, and the follow-up jobs that are then due are made."""
    total: int
    """How many jobs have joined. A replay is in the place of the job that it repeats."""
    live: int
    """How many have not ended."""
    succeeded: int
    failed: int
    cancelled: int
    dead_lettered: int
    progress: float
    """The part that has succeeded, from 0 to 1. A group without jobs has 1 when it is closed."""
    live_by_status: dict[str, int] | None
    """The jobs that have not ended, by status. None in lists."""
    then: dict[str, Any] | None
    """The job to make when all have succeeded, as an item of `enqueue_many`."""
    then_job: int | None
    """The id of that job, once it is made."""
    on_dead: dict[str, Any] | None
    """The job to make when the first job ends without success."""
    on_dead_job: int | None
    last_error: str | None
    """Why a follow-up job could not be made. `close_group` tries again."""


class GroupRefusal(msgspec.Struct, frozen=True):
    """A job of a group that was left as it was, and why."""

    job_id: int
    code: str
    message: str


class GroupChange(msgspec.Struct, frozen=True):
    """What `cancel_group` and `replay_group` have done."""

    group: GroupRecord
    changed: int
    """How many jobs were cancelled or replayed."""
    refused: int
    refusals: list[GroupRefusal]
    """The first 100 refusals."""


class GroupVerbs(OnJobsVerb, DeclarationVerb):
    def group(
        self,
        name: str,
        *,
        then: Mapping[str, Any] | None = None,
        on_dead: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> GroupRecord:
        """Make a group that jobs can join with `enqueue(…, group=name)` until `close_group`.

        `then` is the job to make when the group is closed and all its jobs have succeeded. `on_dead` is the job to make when
        the first of them fails, is cancelled or is dead-lettered. Both are items as for `enqueue_many`, and each is made once.
        Without a queue, they have the queue, limits and labels that the handler of their kind declares. If there is a group of
        this name with the same follow-up jobs, it is returned. With other ones, that is a Conflict.
        """
        limits.check_name("name", name)
        body = GroupBody(then=self._follow_up(name, "then", then), on_dead=self._follow_up(name, "on_dead", on_dead))
        who = validate.actor(actor, Role.CLIENT, self._actor)
        self._set("group", (name, body), request_id, who, partial(_make_group, name, body, who.name))
        return self.get_group(name)

    def close_group(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> GroupRecord:
        """Let no more jobs join a group. If all have succeeded, its follow-up job is made.

        A closed group stays closed. If its follow-up job was refused, this tries again. If jobs join it in an open transaction,
        this waits some seconds for that one to end. While follow-up jobs of other groups may still join it, that is a Conflict.
        """
        return self._close("close_group", name, request_id, actor, cancelled=False)

    def cancel_group(
        self, name: str, *, reason: str = "requested", hard: bool = False, actor: str | Actor | None = None
    ) -> GroupChange:
        """Close a group and cancel its jobs that have not ended. It does not make `then` unless it is replayed.

        Jobs that run end when their holders notice, as after `cancel`. 200 jobs at a time share a transaction. If this is
        interrupted, call it again: it goes on with the jobs that are left.
        """
        reason, hard = validate.reason(reason), validate.switch("hard", hard)
        self._close("cancel_group", name, None, actor, cancelled=True)
        return self._on_members(name, LIVE, partial(self.on_jobs, "cancel", hard=hard, reason=reason, actor=actor))

    def replay_group(self, name: str, *, reason: str | None = None, actor: str | Actor | None = None) -> GroupChange:
        """Replay the jobs of a group that failed, were cancelled or were dead-lettered. Each replay takes its job's place.

        Jobs that were discarded are not replayed. A group that was cancelled makes `then` again when all have succeeded. If
        this is interrupted, call it again: it goes on with the jobs that are left.
        """
        reason = validate.reason_if_any(reason)

        def work(session: Session) -> None:
            row = _locked(session, name)
            if row.cancelled_at is not None:
                check_children(name, [child.name for child in session.children(name)], closed=True)
                session.uncancel_group(row.id)

        self._set("replay_group", (limits.check_name("name", name),), None, actor, work)
        return self._on_members(name, sorted(DEAD), partial(self.on_jobs, "replay", again=True, reason=reason, actor=actor))

    # Reading

    def get_group(self, name: str) -> GroupRecord:
        """Return a group with its counts."""
        limits.check_name("name", name)
        return self._store.read(partial(_read_group, name))

    def groups(self, *, after: str = "", limit: int = limits.PAGE_MAX, unfinished: bool = False) -> list[GroupRecord]:
        """Return groups by name, those after the name `after`. With `unfinished`, leave out those that are done."""
        validate.page_by_name(after, limit)
        return self._store.read(partial(_read_page, after, limit, unfinished=validate.switch("unfinished", unfinished)))

    def group_jobs(
        self, name: str, *, status: str | Sequence[str] | None = None, after: int = 0, limit: int = limits.PAGE_MAX
    ) -> list[Job]:
        """Return the jobs of a group by id, those after the id `after`, all or only those in some statuses.

        A replay is here in the place of the job that it repeats.
        """
        limits.check_name("name", name)
        validate.page(after, limit)
        found, _ = validate.statuses(status)
        statuses = tuple(Status) if found is None else found

        def look(session: Session) -> list[Job]:
            ids = session.group_jobs(_found(session, name).id, statuses, after, limit)
            jobs = session.load(ids, lock=False)
            return [public_job(jobs[id_]) for id_ in ids]

        return self._store.read(look)

    def wait_group(self, name: str, *, timeout: float | None = None) -> GroupRecord:
        """Wait until a group is closed, all its jobs have ended and its follow-up job is made, and return it.

        A follow-up job that is not due, or was refused, is not waited for: see `then_job` and `last_error`.
        After `timeout` seconds, return it as it is: check its `done`. By default, wait without a limit.
        """
        limits.check_name("name", name)
        with contextlib.closing(self._store.waiter(events=True)) as waiter:
            self._wait(waiter, partial(self._store.read, partial(_is_group_done, name)), bool, validate.timeout(timeout))
        return self.get_group(name)

    # Steps

    def _follow_up(self, name: str, field: FollowUpName, item: Any) -> FollowUp | None:
        if item is None:
            return None
        if not isinstance(item, Mapping) or "kind" not in item or not all(isinstance(name, str) for name in item):
            raise ValidationError(f"{field} is an object with at least a kind", field=field)
        if item.get("available_at") is not None:
            raise ValidationError("a follow-up job has no time of its own; a delay is possible", field="available_at")
        given = {option: value for option, value in item.items() if value is not None}
        if "queue" not in given:
            given = follow_up_item(self, name, field, given)
        command = self._enqueues.command(validate.actor(None, Role.CLIENT, self._actor), None, **given)
        if self._limit_keys is not None:
            self._limit_keys.add([command])  # only to check it: the keys are those of the time at which the job is made
        return FollowUp(msgspec.Raw(command.payload), command.correlation_id, command.trace_id)

    def _close(self, verb: str, name: str, request_id: str | None, actor: Any, *, cancelled: bool) -> GroupRecord:
        who = validate.actor(actor, Role.CLIENT, self._actor)
        children: list[ChildGroup] = []

        def work(session: Session) -> None:
            row = _locked(session, name)
            if row.closed_at is None and not cancelled:
                children[:] = session.children(name)
                check_children(name, [child.name for child in children], closed=False)
            session.set_group_closed(row.id, who.name, cancelled=cancelled)
            session.wake(set())

        close = partial(self._set, verb, (limits.check_name("name", name),), request_id, who, work)
        try:
            close()
        except Conflict:
            due = [child.name for child in children if child.is_due]
            if not due:
                raise
            for child in due:
                self._pipeline.count_group(child)
            close()
        return self.get_group(name)

    def _on_members(
        self, name: str, statuses: Sequence[str], change: Callable[[Sequence[int]], list[Job | HoldfastError]]
    ) -> GroupChange:
        """Change the jobs that are in these statuses now, BULK_MAX at a time."""
        ids = self._store.read(partial(_all_jobs, name, statuses))
        changed, refused, refusals = 0, 0, list[GroupRefusal]()
        for part in chunks(ids, limits.BULK_MAX):
            for id_, answer in zip(part, change(part), strict=True):
                if not isinstance(answer, HoldfastError):
                    changed += 1
                    continue
                refused += 1
                if len(refusals) < REFUSALS_SHOWN_MAX:
                    refusals.append(GroupRefusal(id_, answer.code, answer.message))
        return GroupChange(self.get_group(name), changed, refused, refusals)


def follow_up_item(ledger: GroupVerbs, name: str, field: FollowUpName, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a follow-up job, which names no queue, with the queue, limits and labels that the handler of its kind declares.

    If the group is there, they are those that it has, so that a repeated call gives the same job: another handler may have
    declared the kind since then.
    """
    with contextlib.suppress(NotFound):
        known = getattr(ledger.get_group(name), field)
        if known is not None and known["kind"] == item.get("kind"):
            return with_defaults(item, known)
    return declared_item(item, ledger.declarations())


def _make_group(name: str, body: GroupBody, by: str, session: Session) -> None:
    row = session.find_group(name)
    if row is None:
        limits.check_count("unfinished groups", session.count_unfinished_groups() + 1, limits.UNFINISHED_GROUPS_MAX)
        found = session.joinable_groups(sorted(set(body.joins())))
        check_chain(name, body.joins(), partial(_joins, session))
        for joined in body.joins():
            if joined not in found:
                raise unknown_group(joined)
            if found[joined].is_closed:
                raise closed_group(joined, "follow-up job")
        session.add_group(name, body, by)
        row = _found(session, name)
    if not same_definition(row.decoded(), body):
        action = "Use another name, or give the same follow-up jobs."
        raise Conflict(f"there is a group {name!r} with other follow-up jobs", action=action, group=name)


def _joins(session: Session, name: str) -> list[str]:
    row = session.find_group(name)
    return [] if row is None else list(row.decoded().joins())


def _found(session: Session, name: str) -> GroupRow:
    row = session.find_group(name)
    if row is None:
        raise unknown_group(name)
    return row


def _locked(session: Session, name: str) -> GroupRow:
    row = session.lock_group(name)
    if row is None:
        raise unknown_group(name)
    return row


def _all_jobs(name: str, statuses: Sequence[str], session: Session) -> list[int]:
    """Return the jobs of a group that are in these statuses and not discarded."""
    group_id, found = _found(session, name).id, list[int]()
    while page := session.group_jobs(group_id, statuses, found[-1] if found else 0, limits.PAGE_MAX, discarded=False):
        found += page
    return found


def _read_group(name: str, session: Session) -> GroupRecord:
    row = _found(session, name)
    record = _record(row, session.pending_changes([row.id]).get(row.id, NOTHING_PENDING))
    found = session.live_statuses(row.id) if record.live else {}
    return msgspec.structs.replace(record, live_by_status={status.value: found.get(status.value, 0) for status in LIVE})


def _read_page(after: str, limit: int, session: Session, *, unfinished: bool) -> list[GroupRecord]:
    rows = session.groups(after, limit, unfinished=unfinished)
    pending = session.pending_changes([row.id for row in rows])
    return [_record(row, pending.get(row.id, NOTHING_PENDING)) for row in rows]


def _is_group_done(name: str, session: Session) -> bool:
    row = _found(session, name)
    pending = session.pending_changes([row.id]).get(row.id, NOTHING_PENDING)
    return is_settled(row.plus(pending.counts), row.decoded())


def _record(row: GroupRow, pending: PendingChanges) -> GroupRecord:
    body, counted = row.decoded(), row.plus(pending.counts)
    counts = counted.counts
    return public_record(
        GroupRecord,
        row,
        done=is_settled(counted, body),
        total=counts.joined,
        live=counts.live,
        progress=counts.succeeded / counts.joined if counts.joined else float(row.closed_at is not None),
        live_by_status=None,
        then=_item(body.then),
        on_dead=_item(body.on_dead),
        **{name: getattr(counts, name) for name in ("succeeded", "failed", "cancelled", "dead_lettered")},
    )


def _item(follow_up: FollowUp | None) -> dict[str, Any] | None:
    """Return a follow-up job as an item of `enqueue_many`."""
    if follow_up is None:
        return None
    from holdfast.ledger.verbs.schedules import job_options

    payload = follow_up.decoded()
    options = job_options(follow_up, payload)
    return {"kind": payload.kind, "args": msgspec.json.decode(payload.args), "queue": payload.queue, **options}
