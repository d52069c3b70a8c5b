"""Error messages for agents: the state of the task at the time of the refusal, and the suggested action."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core import limits
from holdfast.core.model import TERMINAL, Actor, JobRecord, Micros, Status
from holdfast.core.text import iso_format
from holdfast.errors import FenceLost, HoldfastError, InvalidTransition, LeaseConflictError, NotClaimable
from holdfast.ledger.public import to_datetime
from holdfast.store.session import Session

DEFAULT_SESSION = "agent"


class Suggestions:
    """The wording of suggested actions, as shell commands and options. Each method returns the text for one action."""

    def resume(self, who: Actor) -> str:
        return self._command_of(who, "resume")

    def start(self, who: Actor, job_id: int) -> str:
        return self._command_of(who, "task", "start", str(job_id))

    def explain(self, job_id: int) -> str:
        return f"holdfast explain {job_id}"

    def get_task(self, job_id: int) -> str:
        return f"holdfast task get {job_id}"

    def attempt(self, number: int) -> str:
        return f"use --attempt {number}"

    def session(self, name: str) -> str | None:
        """Return None if the caller cannot use another session."""
        return f"use --session {shlex.quote(name)}"

    def _command_of(self, who: Actor, *words: str) -> str:
        session = [] if who.incarnation == DEFAULT_SESSION else ["--session", who.incarnation]
        return shlex.join(["holdfast", *words, "--agent", who.name, *session])


EXPLAINED_ERRORS = (LeaseConflictError, InvalidTransition, NotClaimable)

_NOT_CLAIMABLE = {
    "paused": "its queue {queue} is paused",
    "scheduled": "it is scheduled for later",
    "backoff": "it waits for its next retry",
    "resume_window": "its last holder may still resume it",
    "cancelling": "its cancellation was requested",
    "exhausted": "it has used up its attempts",
}


class RefusedRequest(NamedTuple):
    """The caller of a refused request, the wording of its suggestions, and the attempt that it gave, if any."""

    who: Actor
    suggestions: Suggestions
    attempt: int | None = None

    @property
    def take_another(self) -> str:
        return f"Take another task: {self.suggestions.resume(self.who)}"


class RefusalText(NamedTuple):
    message: str
    action: str


def explain_refusal(error: HoldfastError, session: Session, request: RefusedRequest) -> HoldfastError:
    """Return the refusal with a message and an action for an agent. Call it while the task is still locked.

    Errors that are not in EXPLAINED_ERRORS are returned unchanged.
    """
    job_id = error.context.get("job_id")
    if not isinstance(error, EXPLAINED_ERRORS) or job_id is None:
        return error
    job = session.load([job_id], lock=False).get(job_id)
    if job is None:
        return error
    text = _describe_refusal(error, session, job, request)
    explained = type(error)(text.message, **{**error.context, **job.held_by, **_holder_context(job)})
    explained.action = text.action
    return explained


def _describe_refusal(error: HoldfastError, session: Session, job: JobRecord, request: RefusedRequest) -> RefusalText:
    if job.status in TERMINAL:
        return RefusalText(_format_finished(job), f"There is nothing left to do for it. {request.take_another}")
    if isinstance(error, NotClaimable):
        action = f"See what it waits for: {request.suggestions.explain(job.id)}."
        if job.token is not None and job.is_of(request.who):
            action = f"Attempt {job.attempt} is still yours: a heartbeat resumes it, and it can be completed or failed."
        return RefusalText(_format_not_claimable(error, session, job), f"{action} {request.take_another}")
    if isinstance(error, FenceLost):
        return _describe_fence_lost(job, request)
    if isinstance(error, LeaseConflictError):
        return RefusalText(
            f"task {job.id} is held by {_format_holder(job, request)}", _suggest_session(job, request) or request.take_another
        )
    return RefusalText(f"task {job.id} is {job.status.value}", f"Look at it: {request.suggestions.get_task(job.id)}")


def _describe_fence_lost(job: JobRecord, request: RefusedRequest) -> RefusalText:
    if job.owner is None:
        at = "" if request.attempt in (None, job.attempt) else f", at attempt {job.attempt}; you gave {request.attempt}"
        return RefusalText(
            f"task {job.id} has no holder: it is {job.status.value}{at}",
            f"To claim it: {request.suggestions.start(request.who, job.id)}",
        )
    if not _is_held_by(job, request.who):
        stop = "Stop working on it; nothing you write for it will be accepted."
        action = _suggest_session(job, request) or f"{stop} {request.take_another}"
        return RefusalText(f"task {job.id} is not {request.who.name}'s: it is held by {_format_holder(job, request)}", action)
    message = f"task {job.id} is at attempt {job.attempt}, which is yours; you gave {request.attempt}"
    if (request.attempt or 0) > job.attempt:
        return RefusalText(message, f"It is yours: {request.suggestions.attempt(job.attempt)}.")
    stop = f"Stop if you are the process of attempt {request.attempt}: a newer process has the task."
    return RefusalText(message, f"{stop} If you are the newer process, {request.suggestions.attempt(job.attempt)}.")


def _is_held_by(job: JobRecord, who: Actor) -> bool:
    return (job.owner, job.incarnation) == (who.name, who.incarnation)


def _format_holder(job: JobRecord, request: RefusedRequest) -> str:
    """Return the holder and the end of its lease; with both sessions if the holder has the caller's name."""
    until = "" if job.lease_expires_at is None else f", until {_format_time(job.lease_expires_at)}"
    if job.owner != request.who.name:
        return f"{job.owner}{until}"
    return f"{job.owner} in session {job.incarnation}{until}; you are in session {request.who.incarnation}"


def _suggest_session(job: JobRecord, request: RefusedRequest) -> str | None:
    """Return the action if the same agent holds the task in another session, else None."""
    if job.owner != request.who.name or job.incarnation is None:
        return None
    use = request.suggestions.session(job.incarnation)
    return None if use is None else f"If that session is you: {use}. If not: {request.suggestions.resume(request.who)}"


def _format_finished(job: JobRecord) -> str:
    verb = "has" if job.status in (Status.SUCCEEDED, Status.FAILED) else "is"
    by = "" if job.last_owner is None else f", last held by {job.last_owner}"
    at = "" if job.finished_at is None else f", at {_format_time(job.finished_at)}"
    return f"task {job.id} {verb} {job.status.value.replace('_', '-')} already{by}{at}"


def _format_not_claimable(error: HoldfastError, session: Session, job: JobRecord) -> str:
    why, until = error.context.get("why"), error.context.get("until")
    if why == "dependency":
        return f"task {job.id} cannot be claimed: it waits for {_format_blockers(session, job.waits_for)}"
    text = _NOT_CLAIMABLE.get(str(why), str(why)).format(queue=job.queue)
    return f"task {job.id} cannot be claimed: {text}" + ("" if until is None else f", until {_format_time(until)}")


def _format_blockers(session: Session, ids: Sequence[int]) -> str:
    shown = ids[: limits.BLOCKERS_NAMED_MAX]
    jobs = session.load(shown, lock=False)
    names = [f"task {id_} ({_format_status(jobs[id_])})" for id_ in shown if id_ in jobs]
    more = len(ids) - len(shown)
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


def _format_status(job: JobRecord) -> str:
    return job.status.value + ("" if job.owner is None else f", held by {job.owner}")


def _holder_context(job: JobRecord) -> dict[str, object]:
    if job.owner is None or job.lease_expires_at is None:
        return {}
    return {"holder_session": job.incarnation, "held_until": to_datetime(job.lease_expires_at)}


def _format_time(at: Micros) -> str:
    return iso_format(to_datetime(at))
