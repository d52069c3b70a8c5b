"""One finished job that owes undo steps: its undo job is made, or how that one ended is noted."""

from holdfast.core.commands import Compensate
from holdfast.core.model import EventType, Job, Micros
from holdfast.core.undo import end_of_undo, owes_undo, undo_of
from holdfast.ledger.notary import Sitting
from holdfast.store.base import Session


def compensate(session: Session, job: Job, command: Compensate, now: Micros, sitting: Sitting) -> tuple[EventType, ...]:
    """What was due for `job`, whose row is locked; the types of the events that made."""
    if not owes_undo(job):
        return ()
    undo = session.undo_job(job)
    if undo is None:
        session.enqueue([undo_of(job, session.undo_steps(job.id), command, now)])
        return (EventType.ENQUEUED,)
    note = end_of_undo(undo, command)
    if note is None:
        return ()
    outcome = sitting.decide(job, note, now)
    session.save(outcome.job, outcome.events)
    return tuple(event.type for event in outcome.events)
