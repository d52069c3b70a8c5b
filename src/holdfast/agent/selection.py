"""Which task `resume` selects, and why there is none."""

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import HELD, NEVER, JobRecord, Status
from holdfast.errors import InvalidTransition, LeaseConflictError, NotClaimable, NotFound, SignatureInvalid
from holdfast.ledger.public import to_datetime
from holdfast.ledger.transaction import JobSteps
from holdfast.store.agents import AgentState


class ResumeOptions(NamedTuple):
    """What an agent is willing to take up."""

    ttl_ms: int | None
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None


class IdleReason(msgspec.Struct, frozen=True, kw_only=True):
    """Live tasks of the queues and kinds asked for that could not be had, each counted up to 1,000: `held` by others, or stalled;
    `waiting` for other tasks; `scheduled` for later, or in a backoff; in `paused` queues.

    `then` is "wait" while there are any, and "done" where no live task is left.
    """

    held: int
    waiting: int
    scheduled: int
    paused: int
    then: Literal["wait", "done"]


class IdleAnswer(NamedTuple):
    nothing: IdleReason
    until: datetime | None


def explain_idle(acts: JobSteps, options: ResumeOptions) -> IdleAnswer:
    """What an agent is told that got no task. `until` is when the next becomes available, if that is a matter of time alone."""
    found = acts.session.idle(options.queues, options.kinds, limits.IDLE_COUNT_MAX)
    firsts = [first.available_at for first in acts.session.first_tasks(options.queues, options.kinds)]
    now = acts.session.now()
    being_taken = sum(at <= now for at in firsts)  # available, and yet not to be had: somebody else is at them just now
    held = min(found.held + being_taken, limits.IDLE_COUNT_MAX)
    soon = min((at for at in firsts if at < NEVER), default=None)
    counts = found._replace(held=held)
    nothing = IdleReason(**counts._asdict(), then="wait" if any(counts) else "done")
    return IdleAnswer(nothing, None if soon is None else to_datetime(soon))


def format_idle(nothing: IdleReason | None, until: datetime | None) -> str:
    """Why there is nothing, and whether to come back."""
    if nothing is None or nothing.then == "done":
        return "There is nothing to do, and no task is left to wait for."
    due = (
        "in a minute" if until is None else f"at {until.isoformat().replace('+00:00', 'Z')}, when the next one is due, or before"
    )
    return f"There is nothing to do now: {format_unavailable_tasks(nothing)}. Resume again {due}."


def format_unavailable_tasks(nothing: IdleReason) -> str:
    """How many tasks could not be had, by what is in the way."""
    parts = [
        (nothing.held, "held by others"),
        (nothing.waiting, "waiting for other tasks"),
        (nothing.scheduled, "scheduled for later"),
        (nothing.paused, "in paused queues"),
    ]
    return ", ".join(f"{_format_count(number)} {what}" for number, what in parts if number)


def _format_count(number: int) -> str:
    return f"{number:,} or more" if number >= limits.IDLE_COUNT_MAX else f"{number:,}"


class Selection(NamedTuple):
    job: JobRecord
    why: str


DEFAULT_TTL_MS = 300_000
"""How long a new claim of an agent lasts unless it says otherwise."""


def claim_and_start(acts: JobSteps, job_id: int, ttl_ms: int | None) -> JobRecord:
    """Claim the task and start it. A live claim of this agent is renewed; any other claim makes a new attempt.

    A renewal without `ttl_ms` keeps the claim's length.
    """
    job = acts.claim(job_id, DEFAULT_TTL_MS if ttl_ms is None else ttl_ms, keeps_ttl=ttl_ms is None)
    return acts.start(job) if job.status is Status.CLAIMED else job


def select_task(acts: JobSteps, place: AgentState, options: ResumeOptions) -> Selection | None:
    """Its focus, an own task that runs, one that is claimed, its last one if that was put back, then the next in order, then
    one that somebody has let expire."""
    return (
        _select_own(acts, place, options)
        or _select_last(acts, place, options)
        or _select_next(acts, options)
        or _select_expired(acts, options)
    )


def _select_own(acts: JobSteps, place: AgentState, options: ResumeOptions) -> Selection | None:
    ids = acts.session.own_tasks(acts.who.name, acts.who.incarnation, limits.OWN_TASKS_MAX)
    if place.focus is not None:
        ids = [place.focus, *(id_ for id_ in ids if id_ != place.focus)]
    found = acts.session.load(ids, lock=False) if ids else {}
    for id_ in ids:
        job = found.get(id_)
        if job is None or not acts.holds(job) or job.status not in (*HELD, Status.STALLED):
            continue
        why = "focus" if id_ == place.focus else job.status.value
        if (taken := _try_claim(acts, id_, options.ttl_ms)) is not None:
            return Selection(taken, why)
    return None


def _select_last(acts: JobSteps, place: AgentState, options: ResumeOptions) -> Selection | None:
    """Whatever the agent had last and somebody has put back into the queue."""
    if place.last is None:
        return None
    job = acts.session.load([place.last], lock=False).get(place.last)
    if job is None or job.status is not Status.QUEUED or job.last_owner != acts.who.name or not _matches(job, options):
        return None
    taken = _try_claim(acts, job.id, options.ttl_ms)
    return None if taken is None else Selection(taken, "last")


def _matches(job: JobRecord, options: ResumeOptions) -> bool:
    return (options.queues is None or job.queue in options.queues) and (options.kinds is None or job.kind in options.kinds)


def _select_next(acts: JobSteps, options: ResumeOptions) -> Selection | None:
    """Higher priority first, then what has been available longest, then by id."""
    now = acts.session.now()
    ready = [first for first in acts.session.first_tasks(options.queues, options.kinds) if first.available_at <= now]
    ready.sort(key=lambda first: (-first.priority, first.available_at, first.id))
    passed: list[int] = []
    for first in ready[: limits.RESUME_TRIES_MAX]:
        while len(passed) < limits.RESUME_TRIES_MAX:
            id_ = acts.session.take_task(first.queue, first.priority, options.kinds, passed)
            if id_ is None:
                break
            if (taken := _try_claim(acts, id_, options.ttl_ms)) is not None:
                return Selection(taken, "next")
            passed.append(id_)
    return None


def _select_expired(acts: JobSteps, options: ResumeOptions) -> Selection | None:
    """The longest expired first; one that somebody else is just taking is passed over."""
    for id_ in acts.session.expired_tasks(options.queues, options.kinds, limits.RESUME_TRIES_MAX):
        if acts.session.lock_task(id_) and (taken := _try_claim(acts, id_, options.ttl_ms)) is not None:
            return Selection(taken, "expired")
    return None


def _try_claim(acts: JobSteps, job_id: int, ttl_ms: int | None) -> JobRecord | None:
    """None where it went to somebody else, into a backoff or to its end since it was looked at, or is not for this process to
    sign. A refusal has changed nothing."""
    try:
        return claim_and_start(acts, job_id, ttl_ms)
    except (LeaseConflictError, NotClaimable, InvalidTransition, NotFound, SignatureInvalid):
        return None
