"""Enqueue a job with a dedupe key. If another job has the key, do what the call says: keep, replace or postpone."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core import commands as c
from holdfast.core.decide import Decision, decide
from holdfast.core.windows import Outcome, change_command, outcome_of
from holdfast.store.base import Contention
from holdfast.store.session import EnqueuedRow, Session

TRIES_MAX = 10


class KeyedJob(NamedTuple):
    """The new job, or the one that has the key."""

    row: EnqueuedRow
    change: Decision | None = None
    """What the call has changed in the job that has the key."""


def lock_key_holders(session: Session, calls: Iterable[c.Enqueue]) -> None:
    """Lock the jobs that several calls of one transaction may change, in the order of their keys.

    Otherwise two such transactions that name the same keys in another order would wait for each other.
    """
    keys = {(call.queue, call.dedupe_key) for call in calls if call.dedupe_key is not None and call.on_duplicate != "keep"}
    if len(keys) > 1:
        for queue, key in sorted(keys):
            session.lock_key_holder(queue, key)


def enqueue_keyed(session: Session, call: c.Enqueue) -> KeyedJob:
    """Make the job of `call`, or return the one that has its dedupe key. Raise Conflict if that one is of another kind.

    The job that has the key is locked before it is changed or loses the key. It may be claimed, or end, before that: the call
    then begins anew.
    """
    assert call.dedupe_key is not None
    for _ in range(TRIES_MAX):
        row = session.enqueue_keyed(call)
        if row.is_new or call.on_duplicate == "keep":
            return KeyedJob(row)
        holder_id = session.lock_key_holder(call.queue, call.dedupe_key)
        if holder_id is None:
            continue
        job, now = session.load([holder_id], lock=False)[holder_id], session.now()
        outcome = outcome_of(job, call, now)
        if outcome is Outcome.TAKE:
            session.take_key(holder_id)
            continue
        found = EnqueuedRow(holder_id, job.created_at, False)
        if outcome is Outcome.KEEP:
            return KeyedJob(found)
        change = decide(job, change_command(holder_id, call), now)
        if not change.events:
            return KeyedJob(found)
        session.save(change.job, change.events)
        return KeyedJob(found, change)
    raise Contention(f"the jobs with the key {call.dedupe_key!r} change too quickly")
