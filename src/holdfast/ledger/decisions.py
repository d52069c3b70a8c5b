"""Load a job under its lock, decide what a command does, save it, and resolve the job's dependents if it has ended."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.commands import Compensate
from holdfast.core.decide import Decision
from holdfast.core.flow import LimitKey
from holdfast.core.model import TERMINAL, EventRecord, EventType, JobRecord, Micros, Status
from holdfast.core.undo import has_undo_due, undo_command, undo_note
from holdfast.errors import HoldfastError, IdempotencyConflict
from holdfast.ledger import dependencies
from holdfast.ledger.requests import Item, Result, change_of
from holdfast.ledger.signing import TransactionSigner
from holdfast.store.session import AppliedCommand, Session


def compensate(
    session: Session, job: JobRecord, command: Compensate, now: Micros, signer: TransactionSigner
) -> tuple[EventType, ...]:
    """Enqueue the undo job of `job`, or note its outcome, if that is due. Return the types of the events made.

    The row of `job` is locked.
    """
    if not has_undo_due(job):
        return ()
    undo = session.undo_job(job)
    if undo is None:
        session.enqueue([undo_command(job, session.undo_steps(job.id), command, now)])
        return (EventType.ENQUEUED,)
    note = undo_note(undo, command)
    if note is None:
        return ()
    outcome = signer.decide(job, note, now)
    session.save(outcome.job, outcome.events)
    return tuple(event.type for event in outcome.events)


def decide_each(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    ids = [item.command.job_id for item in items]
    jobs = session.load(ids, lock=True)
    if isinstance(items[0].command, c.Complete):
        # Lock the dependents of all jobs at once. Locking them one by one would lock them in any order.
        session.lock_waiting(ids)
    now = session.now()
    for item in items:
        try:
            item.answer(_decide_one(session, jobs, item, now, signer))
        except HoldfastError as refusal:
            before = _done_before(session, item.command)
            item.answer(before or refusal)
            item.result.repeated = item.result.repeated or isinstance(before, AppliedCommand)


def _decide_one(session: Session, jobs: dict[int, JobRecord], item: Item, now: int, signer: TransactionSigner) -> Any:
    """Decide one command and save the outcome. `jobs` has all jobs of the round: a cascade may change several of them."""
    command = item.command
    job = jobs.get(command.job_id)
    if isinstance(command, _MAY_STALL) and command.fresh_since is None:
        command = msgspec.structs.replace(command, fresh_since=session.fresh_since())
    if isinstance(command, c.ClaimJob) and job is not None:
        command = msgspec.structs.replace(command, policy=session.policy_of(job), paused=session.paused(job.queue))
    if isinstance(command, c.MoveJob) and job is not None and job.dedupe_key is not None and session.has_key(job.id):
        other = None if command.queue in (None, job.queue) else session.key_holder(command.queue, job.dedupe_key)
        command = msgspec.structs.replace(command, key_holder=other)
    outcome = signer.decide(job, command, now)
    draws: Sequence[tuple[LimitKey, int]] = ()
    if isinstance(command, c.ClaimJob) and job is not None and job.flow is not None and outcome.job.attempt > job.attempt:
        # The keys of limits may have to be waited for, so only a claim that begins an attempt locks them, and it gets a new time.
        refusal, at, draws = session.check_flow(job, command.actor.name, command.labels)
        now = max(now, at)
        outcome = signer.decide(job, msgspec.structs.replace(command, refusal=refusal), now)
    if outcome.events:
        session.save(outcome.job, outcome.events, draws)
        item.result.changed = True
        item.result.outcomes.append(outcome)
        if outcome.job.status is Status.QUEUED:
            item.result.queues.add(outcome.job.queue)
        if outcome.job.status in TERMINAL and not isinstance(command, c.Annotate):
            resolved = dependencies.resolve_dependents(session, outcome.job, now, command.request_id)
            item.result.note(resolved)
            jobs |= {other.job.id: other.job for other in resolved}
    if isinstance(command, c.Sweep):
        return tuple(event.type for event in outcome.events)
    return change_of(outcome.job) if isinstance(command, _CHANGE_ONLY) else outcome.job


def apply(session: Session, result: Result, command: c.JobCommand, signer: TransactionSigner) -> JobRecord | None:
    """Decide one of several commands of a request, save the outcome, and return the job afterwards.

    Raise the error of a refused command. The caller must then roll back the transaction.
    """
    jobs = session.load([command.job_id], lock=True)
    before = len(result.outcomes)
    _decide_one(session, jobs, Item(result, 0, command), session.now(), signer)
    return result.outcomes[before].job if len(result.outcomes) > before else jobs.get(command.job_id)


_MAY_STALL = (c.ClaimJob, c.Stall, c.Sweep)
"""Commands that may stall a job because of its holder's silence."""
_CHANGE_ONLY = (c.Start, c.Heartbeat, c.Complete)
_OWN_EVENTS: dict[type[c.Command], frozenset[EventType]] = {
    c.Start: frozenset({EventType.STARTED, EventType.RESUMED}),
    c.Complete: frozenset({EventType.SUCCEEDED}),
    c.Settle: frozenset({EventType.SUCCEEDED}),
    c.CompleteGated: frozenset({EventType.SUCCEEDED}),
}


def _done_before(session: Session, command: Any) -> AppliedCommand | HoldfastError | None:
    """Return the answer to a start or completion that was refused because the same request had already done it.

    The event carries the request id. Return None if no event does.
    """
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


def compensate_each(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Compensate each job under its own lock, so that it gets one undo job and one note."""
    jobs = session.load([item.command.job_id for item in items], lock=True)
    now = session.now()
    for item in items:
        job = jobs.get(item.command.job_id)
        try:
            made = () if job is None else compensate(session, job, item.command, now, signer)
        except HoldfastError as refusal:
            item.answer(refusal)
            continue
        item.answer(made)
        if job is not None and made:
            item.result.changed = True
            item.result.queues.add(job.queue)


def continue_cascades(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """Continue all cascades together, within the limit of one transaction. The answer of the first item is for all."""
    first = items[0]
    outcomes = dependencies.continue_cascade(
        session, [item.command.job_id for item in items], session.now(), first.command.request_id
    )
    _answer_for_all(items, outcomes, changed=bool(outcomes))


def link_each(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """Link all jobs as a set. The answer of the first item is for all.

    Jobs with locked dependencies are left for a later sweep.
    """
    first = items[0]
    done, outcomes = dependencies.link_dependents(session, [item.command.job_id for item in items], first.command.request_id)
    _answer_for_all(items, outcomes, changed=bool(done))


def _answer_for_all(items: Sequence[Item], outcomes: Sequence[Decision], *, changed: bool) -> None:
    """Answer the first item with the events of all decisions, and the others with an empty answer."""
    for item in items:
        item.answer(())
    first = items[0]
    first.answer(tuple(event.type for outcome in outcomes for event in outcome.events))
    first.result.note(outcomes)
    first.result.changed = first.result.changed or changed


def _event_change(event: EventRecord) -> AppliedCommand:
    return AppliedCommand(event.job_id, event.rev, event.to_status, event.received_at)
