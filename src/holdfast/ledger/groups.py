"""Bring the counts of groups up to date, and make the follow-up jobs that are due.

Statements that let jobs join or end only add rows with their changes, so 10,000 ends at once do not wait for each other. After
its commit, each process looks whether the changes of its groups matter yet. If so, it locks the group's row, adds them, deletes
them, and makes the follow-up jobs, all in one transaction. If another process has locked the row, that one looks again after its
own commit and finds the changes. So no change is left behind, unless a process is killed in between: the sweep adds those.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import methodcaller

from holdfast.core import limits
from holdfast.core.groups import FollowUpName, GroupRow, due_follow_ups, is_done
from holdfast.core.model import Actor, EventType, Role
from holdfast.errors import HoldfastError, Unavailable
from holdfast.ledger import metrics
from holdfast.ledger.dispatch import enqueue_one
from holdfast.ledger.limit_keys import add_keys
from holdfast.ledger.requests import Request, Result
from holdfast.store.base import Contention, StatementFailed, Store
from holdfast.store.session import EnqueuedRow, Session
from holdfast.watch.process import Metrics

log = logging.getLogger("holdfast.groups")

ERROR_CHARACTERS_MAX = 500
TakeGroup = Callable[[Session], GroupRow | None]
"""Locks a group and returns it. None if it is left to another process."""


class GroupCounter:
    """Brings counts up to date after commits."""

    def __init__(self, store: Store, counts: Metrics) -> None:
        self._store = store
        self._metrics = counts

    def update(self) -> None:
        """Look at the groups of this process's commits. An error is left to the sweep: the commits themselves are done."""
        try:
            while changed := self._store.take_changed_groups():
                for id_ in self._store.read_statement(methodcaller("due_groups", sorted(changed))):
                    self._fold(methodcaller("take_group", id_))
        except (HoldfastError, Contention, StatementFailed) as error:
            log.info("the counts of groups are left to the sweep: %s", error)

    def update_all(self, made: Counter[str]) -> None:
        """Add all changes, also those that do not matter yet. Groups that another process has locked are left to it."""
        for id_ in self._store.read_statement(lambda session: session.changed_group_ids(limits.GROUPS_PER_SWEEP_MAX)):
            try:
                made[EventType.ENQUEUED.value] += self._fold(methodcaller("take_group", id_))
            except Contention:
                continue
        self.update()

    def update_one(self, name: str) -> None:
        """Bring one group up to date. If another process is doing that, wait for it."""
        self._fold(methodcaller("lock_group", name))
        self.update()

    def _fold(self, take: TakeGroup) -> int:
        """Bring the group that `take` locks up to date. Return how many follow-up jobs were made."""
        try:
            results = self._store.transact("work", partial(_fold, take))
        except Unavailable:
            raise
        except HoldfastError as error:
            self._store.transact("work", partial(_note_refusal, take, error))
            return 0
        for result in results:
            metrics.count_answers(self._metrics, result)
        return len(results)


def _fold(take: TakeGroup, session: Session) -> list[Result]:
    """Lock a group, unless another transaction has locked it, and bring it up to date."""
    row = take(session)
    return [] if row is None else bring_up_to_date(session, row)


def bring_up_to_date(session: Session, row: GroupRow) -> list[Result]:
    """Add the changes to the counts of a locked group, and make the follow-up jobs that are due. Return their results."""
    row = _counted(session, row)
    made: dict[FollowUpName, int] = {}
    results = [_make(session, row, name, made) for name in due_follow_ups(row, row.decoded())]
    _save(session, row, made)
    return results


def _counted(session: Session, row: GroupRow) -> GroupRow:
    """Take the changes of a locked group, and return its row with them."""
    return row.plus(session.take_group_changes(row.id))


def _save(session: Session, row: GroupRow, made: dict[FollowUpName, int]) -> None:
    now, is_dead = session.now(), row.counts.dead > 0
    session.save_counts(
        row.id,
        row.counts,
        dead_at=row.dead_at or (now if is_dead else None),
        done_at=(row.done_at or now) if is_done(row.counts, row.closed_at) else None,
        made=made,
        last_error=row.last_error,
    )


def _make(session: Session, row: GroupRow, name: FollowUpName, made: dict[FollowUpName, int]) -> Result:
    """Make a follow-up job. If another job has its dedupe key, that one is taken for it."""
    from holdfast.ledger.schedules import job_command

    follow_up = getattr(row.decoded(), name)
    actor = Actor(Role.CLIENT, f"group:{row.name}")
    command, _ = add_keys(session, job_command(follow_up, None, f"{row.name}/{name}", actor))
    result = Result(Request("enqueue", [command]))
    job = enqueue_one(session, result, command)
    made[name] = job.job_id
    result.answers, result.changed = [EnqueuedRow(job.job_id, job.at, job.is_new)], job.is_new
    session.wake({command.queue, *result.queues})
    return result


def _note_refusal(take: TakeGroup, error: HoldfastError, session: Session) -> None:
    """Add the changes of a group whose follow-up job was refused, and note why."""
    row = take(session)
    if row is not None:
        message = error.message[:ERROR_CHARACTERS_MAX]
        log.warning("group %s made no job: %s", row.name, message, extra={"group": row.name, "code": error.code})
        _save(session, _counted(session, row)._replace(last_error=message), {})
