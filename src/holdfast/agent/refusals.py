"""What an agent is told where it is refused: how the task stands in this moment, and what helps."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.agent.ways import Ways
from holdfast.core import limits
from holdfast.core.model import TERMINAL, Actor, Job, Micros, Status
from holdfast.errors import FenceLost, HoldfastError, InvalidTransition, LeaseConflictError, NotClaimable
from holdfast.ledger.face import to_datetime
from holdfast.store.base import Session

EXPLAINED = (LeaseConflictError, InvalidTransition, NotClaimable)

_NOT_NOW = {
    "paused": "its queue {queue} is paused",
    "scheduled": "it is for later",
    "backoff": "it waits before it is tried again",
    "resume_window": "whoever had it is still waited for",
    "cancelling": "somebody wants it cancelled",
    "exhausted": "it has used up its attempts",
}


class Asked(NamedTuple):
    """Who asks, in which way, and for which attempt if that was said."""

    who: Actor
    ways: Ways
    attempt: int | None = None

    @property
    def another(self) -> str:
        return f"Take another task: {self.ways.resume(self.who)}"


class Said(NamedTuple):
    message: str
    action: str


def explained(error: HoldfastError, session: Session, asked: Asked) -> HoldfastError:
    """The refusal in an agent's words, while the task is still locked; others are passed on as they are."""
    job_id = error.context.get("job_id")
    if not isinstance(error, EXPLAINED) or job_id is None:
        return error
    job = session.load([job_id], lock=False).get(job_id)
    if job is None:
        return error
    told = _told(error, session, job, asked)
    again = type(error)(told.message, **{**error.context, **job.held_by, **_holder(job)})
    again.action = told.action
    return again


def _told(error: HoldfastError, session: Session, job: Job, asked: Asked) -> Said:
    if job.status in TERMINAL:
        return Said(_over(job), f"There is nothing left to do for it. {asked.another}")
    if isinstance(error, NotClaimable):
        helps = f"See what it waits for: {asked.ways.explain(job.id)}."
        if job.token is not None and job.is_of(asked.who):
            helps = f"Attempt {job.attempt} is still yours: a heartbeat resumes it, and it can be completed or failed."
        return Said(_not_now(error, session, job), f"{helps} {asked.another}")
    if isinstance(error, FenceLost):
        return _lost(job, asked)
    if isinstance(error, LeaseConflictError):
        return Said(f"task {job.id} is held by {_whom(job, asked)}", _not_yours(job, asked) or asked.another)
    return Said(f"task {job.id} is {job.status.value}", f"Look at it: {asked.ways.look(job.id)}")


def _lost(job: Job, asked: Asked) -> Said:
    if job.owner is None:
        at = "" if asked.attempt in (None, job.attempt) else f", at attempt {job.attempt}; you said {asked.attempt}"
        return Said(
            f"nobody has task {job.id}: it is {job.status.value}{at}", f"To have it: {asked.ways.start(asked.who, job.id)}"
        )
    if not _is(job, asked.who):
        stop = "Stop working on it; nothing you write for it will be accepted."
        other = _not_yours(job, asked) or f"{stop} {asked.another}"
        return Said(f"task {job.id} is not {asked.who.name}'s: it is held by {_whom(job, asked)}", other)
    message = f"task {job.id} is at attempt {job.attempt}, which is yours; you said {asked.attempt}"
    if (asked.attempt or 0) > job.attempt:
        return Said(message, f"It is yours: {asked.ways.attempt(job.attempt)}.")
    newer = f"Stop, if you are the process of attempt {asked.attempt}: a newer one has the task."
    return Said(message, f"{newer} If you are that one, {asked.ways.attempt(job.attempt)}.")


def _is(job: Job, who: Actor) -> bool:
    return (job.owner, job.incarnation) == (who.name, who.incarnation)


def _whom(job: Job, asked: Asked) -> str:
    """Whoever holds it, and until when; with the session where the name alone does not tell."""
    until = "" if job.lease_expires_at is None else f", until {_time(job.lease_expires_at)}"
    if job.owner != asked.who.name:
        return f"{job.owner}{until}"
    return f"{job.owner} in session {job.incarnation}{until}; you are in session {asked.who.incarnation}"


def _not_yours(job: Job, asked: Asked) -> str | None:
    """Where the same agent has it in another session."""
    if job.owner != asked.who.name or job.incarnation is None:
        return None
    how = asked.ways.session(job.incarnation)
    return None if how is None else f"If that session is you: {how}. If not: {asked.ways.resume(asked.who)}"


def _over(job: Job) -> str:
    verb = "has" if job.status in (Status.SUCCEEDED, Status.FAILED) else "is"
    by = "" if job.last_owner is None else f", last held by {job.last_owner}"
    at = "" if job.finished_at is None else f", at {_time(job.finished_at)}"
    return f"task {job.id} {verb} {job.status.value.replace('_', '-')} already{by}{at}"


def _not_now(error: HoldfastError, session: Session, job: Job) -> str:
    why, until = error.context.get("why"), error.context.get("until")
    if why == "dependency":
        return f"task {job.id} cannot be claimed: it waits for {_blockers(session, job.waits_for)}"
    told = _NOT_NOW.get(str(why), str(why)).format(queue=job.queue)
    return f"task {job.id} cannot be claimed: {told}" + ("" if until is None else f", until {_time(until)}")


def _blockers(session: Session, ids: Sequence[int]) -> str:
    shown = ids[: limits.BLOCKERS_NAMED_MAX]
    found = session.load(shown, lock=False)
    names = [f"task {id_} ({_standing(found[id_])})" for id_ in shown if id_ in found]
    more = len(ids) - len(shown)
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


def _standing(job: Job) -> str:
    return job.status.value + ("" if job.owner is None else f", held by {job.owner}")


def _holder(job: Job) -> dict[str, object]:
    if job.owner is None or job.lease_expires_at is None:
        return {}
    return {"holder_session": job.incarnation, "held_until": to_datetime(job.lease_expires_at)}


def _time(at: Micros) -> str:
    return to_datetime(at).isoformat().replace("+00:00", "Z")
