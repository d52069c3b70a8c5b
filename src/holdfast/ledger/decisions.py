"""Load a job under its lock, decide what a command does, save it, and tell the job's dependents if it has ended."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.commands import Compensate
from holdfast.core.model import TERMINAL, EventRecord, EventType, JobRecord, Micros, Status
from holdfast.core.undo import has_undo_due, undo_command, undo_note
from holdfast.errors import HoldfastError, IdempotencyConflict
from holdfast.ledger import dependencies
from holdfast.ledger.requests import Item, Result, change_of
from holdfast.ledger.signing import TransactionSigner
from holdfast.store.base import AppliedCommand, Session


def compensate(
    session: Session, job: JobRecord, command: Compensate, now: Micros, sitting: TransactionSigner
) -> tuple[EventType, ...]:
    """What was due for `job`, whose row is locked; the types of the events that made."""
    if not has_undo_due(job):
        return ()
    undo = session.undo_job(job)
    if undo is None:
        session.enqueue([undo_command(job, session.undo_steps(job.id), command, now)])
        return (EventType.ENQUEUED,)
    note = undo_note(undo, command)
    if note is None:
        return ()
    outcome = sitting.decide(job, note, now)
    session.save(outcome.job, outcome.events)
    return tuple(event.type for event in outcome.events)


def decide_each(session: Session, items: Sequence[Item], sitting: TransactionSigner) -> None:
    ids = [item.command.job_id for item in items]
    jobs = session.load(ids, lock=True)
    if isinstance(items[0].command, c.Complete):
        # Many at once, and so their dependents too: one by one they could be locked in any order.
        session.lock_waiting(ids)
    now = session.now()
    for item in items:
        try:
            item.answer(_decide_one(session, jobs, item, now, sitting))
        except HoldfastError as refusal:
            item.answer(_done_before(session, item.command) or refusal)


def _decide_one(session: Session, jobs: dict[int, JobRecord], item: Item, now: int, sitting: TransactionSigner) -> Any:
    """`jobs` are those of the whole round: what is decided here may change others of them."""
    command = item.command
    job = jobs.get(command.job_id)
    if isinstance(command, _MAY_STALL) and command.fresh_since is None:
        command = msgspec.structs.replace(command, fresh_since=session.fresh())
    if isinstance(command, c.ClaimJob) and job is not None:
        policy, paused = session.policy_of(job), session.paused(job.queue)
        command = msgspec.structs.replace(command, policy=policy, paused=paused)
    if isinstance(command, c.MoveJob) and job is not None and job.dedupe_key is not None:
        command = msgspec.structs.replace(command, key_holder=session.key_holder(command.queue, job.dedupe_key))
    outcome = sitting.decide(job, command, now, own=item.result.request.verb != "append")
    if outcome.events:
        session.save(outcome.job, outcome.events)
        item.result.changed = True
        item.result.outcomes.append(outcome)
        if outcome.job.status is Status.QUEUED:
            item.result.queues.add(outcome.job.queue)
        if outcome.job.status in TERMINAL and not isinstance(command, c.Annotate):
            told = dependencies.resolve_dependents(session, outcome.job, now, command.request_id)
            item.result.note(told)
            jobs |= {other.job.id: other.job for other in told}
    if isinstance(command, c.Sweep):
        return tuple(event.type for event in outcome.events)
    return change_of(outcome.job) if isinstance(command, _CHANGE_ONLY) else outcome.job


def apply(session: Session, result: Result, command: c.JobCommand, sitting: TransactionSigner) -> JobRecord | None:
    """Decide one of several commands of a request, save what it says, and return the job afterwards.

    A refusal is raised, and what was saved before it must not be committed.
    """
    jobs = session.load([command.job_id], lock=True)
    before = len(result.outcomes)
    _decide_one(session, jobs, Item(result, 0, command), session.now(), sitting)
    return result.outcomes[before].job if len(result.outcomes) > before else jobs.get(command.job_id)


_MAY_STALL = (c.ClaimJob, c.Stall, c.Sweep)
"""Commands that may call a holder dead."""
_CHANGE_ONLY = (c.Start, c.Heartbeat, c.Complete)
_OWN_EVENTS: dict[type[c.Command], frozenset[EventType]] = {
    c.Start: frozenset({EventType.STARTED, EventType.RESUMED}),
    c.Complete: frozenset({EventType.SUCCEEDED}),
    c.CompleteInBatch: frozenset({EventType.SUCCEEDED}),
    c.CompleteGated: frozenset({EventType.SUCCEEDED}),
}


def _done_before(session: Session, command: Any) -> AppliedCommand | HoldfastError | None:
    """A start or completion that was refused because this very request had already done it: the event carries its id."""
    kinds = _OWN_EVENTS.get(type(command))
    if kinds is None or command.request_id is None:
        return None
    event = session.find_event(command.job_id, command.request_id)
    if event is None or event.actor.name != command.actor.name:
        return None
    if event.type not in kinds or (isinstance(command, c.Complete) and event.payload != command.payload):
        return IdempotencyConflict(
            f"request id {command.request_id!r} was used for another {event.type.value}", request_id=command.request_id
        )
    return _event_change(event)


def compensate_each(session: Session, items: Sequence[Item], sitting: TransactionSigner) -> None:
    """Under the job's own lock, so that one undo job is made and one note written."""
    jobs = session.load([item.command.job_id for item in items], lock=True)
    now = session.now()
    for item in items:
        job = jobs.get(item.command.job_id)
        try:
            made = () if job is None else compensate(session, job, item.command, now, sitting)
        except HoldfastError as refusal:
            item.answer(refusal)
            continue
        item.answer(made)
        if job is not None and made:
            item.result.changed = True
            item.result.queues.add(job.queue)


def continue_cascades(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """All of them together, so that they are not more than one transaction may hold. The first answers for all."""
    first = items[0]
    told = dependencies.continue_cascade(
        session, [item.command.job_id for item in items], session.now(), first.command.request_id
    )
    for item in items:
        item.answer(())
    first.answer(tuple(event.type for outcome in told for event in outcome.events))
    first.result.note(told)
    first.result.changed = first.result.changed or bool(told)


def link_each(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """All of them as a set. The first answers for all; those whose dependencies are locked are left for a later sweep."""
    first = items[0]
    done, outcomes = dependencies.link_dependents(session, [item.command.job_id for item in items], first.command.request_id)
    for item in items:
        item.answer(())
    first.answer(tuple(event.type for outcome in outcomes for event in outcome.events))
    first.result.note(outcomes)
    first.result.changed = first.result.changed or bool(done)


def _event_change(event: EventRecord) -> AppliedCommand:
    return AppliedCommand(event.job_id, event.rev, event.to_status, event.received_at)
