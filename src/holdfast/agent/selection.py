"""How `resume` selects a task, and why there may be none."""

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import HELD, NEVER, UNDO_KIND, JobRecord, Status
from holdfast.core.text import iso_format
from holdfast.errors import InvalidTransition, LeaseConflictError, NotClaimable, NotFound, SignatureInvalid
from holdfast.ledger.public import to_datetime
from holdfast.ledger.transaction import JobSteps
from holdfast.store.agents import AgentState, Candidate


class ResumeOptions(NamedTuple):
    """Length of the claim, and the queues and kinds to select from."""

    ttl_ms: int | None
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None


class IdleReason(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the live tasks in the given queues and kinds that cannot be claimed now, each up to 1,000.

    `held`: held by others, or stalled. `waiting`: waiting for other tasks. `scheduled`: for later, or in a backoff.
    `paused`: in paused queues. `limited`: behind a limit, for another agent, or for one with other labels. `then` is "wait" if
    there are any, and "done" if no live task is left.
    """

    held: int
    waiting: int
    scheduled: int
    paused: int
    limited: int = 0
    then: Literal["wait", "done"]


class IdleAnswer(NamedTuple):
    nothing: IdleReason
    until: datetime | None


def explain_idle(steps: JobSteps, options: ResumeOptions) -> IdleAnswer:
    """Return why there is no task, and when the next one becomes available, if that depends on time alone."""
    idle = steps.session.idle(options.queues, options.kinds, limits.IDLE_COUNT_MAX)
    firsts = [first.available_at for first in steps.session.first_tasks(options.queues, options.kinds)]
    now = steps.session.now()
    locked_count = sum(at <= now for at in firsts)  # available, but another transaction is claiming them
    held = min(idle.held + locked_count, limits.IDLE_COUNT_MAX)
    next_at = min((at for at in firsts if at < NEVER), default=None)
    counts = idle._replace(held=held)
    nothing = IdleReason(**counts._asdict(), then="wait" if any(counts) else "done")
    return IdleAnswer(nothing, None if next_at is None else to_datetime(next_at))


def format_idle(nothing: IdleReason | None, until: datetime | None) -> str:
    """Return why there is no task, and when to try again."""
    if nothing is None or nothing.then == "done":
        return "There is nothing to do, and no task is left to wait for."
    due = "in a minute" if until is None else f"at {iso_format(until)}, when the next one is due, or before"
    return f"There is nothing to do now: {format_unavailable_tasks(nothing)}. Resume again {due}."


def format_unavailable_tasks(nothing: IdleReason) -> str:
    """Return the counts of tasks that cannot be claimed, by reason."""
    parts = [
        (nothing.held, "held by others"),
        (nothing.waiting, "waiting for other tasks"),
        (nothing.scheduled, "scheduled for later"),
        (nothing.paused, "in paused queues"),
        (nothing.limited, "behind a limit or for other agents"),
    ]
    return ", ".join(f"{_format_count(number)} {what}" for number, what in parts if number)


def _format_count(number: int) -> str:
    return f"{number:,} or more" if number >= limits.IDLE_COUNT_MAX else f"{number:,}"


class Selection(NamedTuple):
    job: JobRecord
    why: str


DEFAULT_TTL_MS = 300_000
"""Length of an agent's new claim if the agent gives none."""


def claim_and_start(steps: JobSteps, job_id: int, ttl_ms: int | None) -> JobRecord:
    """Claim the task and start it. A live claim of this agent is renewed; any other claim makes a new attempt.

    A renewal without `ttl_ms` keeps the claim's length.
    """
    job = steps.claim(job_id, DEFAULT_TTL_MS if ttl_ms is None else ttl_ms, keeps_ttl=ttl_ms is None)
    return steps.start(job) if job.status is Status.CLAIMED else job


def select_task(steps: JobSteps, state: AgentState, options: ResumeOptions) -> Selection | None:
    """Select the agent's focus, its running task, its claimed task, its last task if that was requeued, the next task in
    order, or a task with an expired claim."""
    return (
        _select_own(steps, state, options)
        or _select_last(steps, state, options)
        or _select_next(steps, options)
        or _select_expired(steps, options)
    )


def _select_own(steps: JobSteps, state: AgentState, options: ResumeOptions) -> Selection | None:
    ids = steps.session.own_tasks(steps.who.name, steps.who.incarnation, limits.OWN_TASKS_MAX)
    if state.focus is not None:
        ids = [state.focus, *(id_ for id_ in ids if id_ != state.focus)]
    jobs = steps.session.load(ids, lock=False) if ids else {}
    for id_ in ids:
        job = jobs.get(id_)
        if job is None or not steps.holds(job) or job.status not in (*HELD, Status.STALLED):
            continue
        why = "focus" if id_ == state.focus else job.status.value
        if (taken := _try_claim(steps, id_, options.ttl_ms)) is not None:
            return Selection(taken, why)
    return None


def _select_last(steps: JobSteps, state: AgentState, options: ResumeOptions) -> Selection | None:
    """Select the task that the agent held last, if it is queued again."""
    if state.last is None:
        return None
    job = steps.session.load([state.last], lock=False).get(state.last)
    if job is None or job.status is not Status.QUEUED or job.last_owner != steps.who.name or not _matches(job, options):
        return None
    taken = _try_claim(steps, job.id, options.ttl_ms)
    return None if taken is None else Selection(taken, "last")


def _matches(job: JobRecord, options: ResumeOptions) -> bool:
    return (options.queues is None or job.queue in options.queues) and (options.kinds is None or job.kind in options.kinds)


def _select_next(steps: JobSteps, options: ResumeOptions) -> Selection | None:
    """Select by higher priority, then by earlier `available_at`, then by lower id."""
    now = steps.session.now()
    ready = [first for first in steps.session.first_tasks(options.queues, options.kinds) if first.available_at <= now]
    ready += _first_of_subqueues(steps, options)
    ready.sort(key=lambda first: (-first.priority, first.available_at, first.id))
    skipped: list[int] = []
    for first in ready[: limits.RESUME_TRIES_MAX]:
        if first.is_chosen:
            if (taken := _try_claim(steps, first.id, options.ttl_ms)) is not None:
                return Selection(taken, "next")
            continue
        while len(skipped) < limits.RESUME_TRIES_MAX:
            id_ = steps.session.take_task(first.queue, first.priority, options.kinds, skipped)
            if id_ is None:
                break
            if (taken := _try_claim(steps, id_, options.ttl_ms)) is not None:
                return Selection(taken, "next")
            skipped.append(id_)
    return None


def _first_of_subqueues(steps: JobSteps, options: ResumeOptions) -> list[Candidate]:
    """Return the task that a claim would take next from each queue with subqueues."""
    queues = steps.session.flow_queues(limits.RESUME_TRIES_MAX, options.queues)
    found = [job for queue in queues if (job := steps.next_in_subqueues(queue, options.kinds)) is not None]
    return [
        Candidate(job.queue, job.priority, job.available_at, job.id, is_chosen=True) for job in found if job.kind != UNDO_KIND
    ]


def _select_expired(steps: JobSteps, options: ResumeOptions) -> Selection | None:
    """Select the longest expired claim first. Skip a task that another transaction has locked."""
    for id_ in steps.session.expired_tasks(options.queues, options.kinds, limits.RESUME_TRIES_MAX):
        if steps.session.lock_task(id_) and (taken := _try_claim(steps, id_, options.ttl_ms)) is not None:
            return Selection(taken, "expired")
    return None


def _try_claim(steps: JobSteps, job_id: int, ttl_ms: int | None) -> JobRecord | None:
    """Claim and start the task. Return None if that is refused: since it was read, another agent has claimed it, or it is in
    a backoff or finished; or this process cannot sign for it. A refusal changes nothing."""
    try:
        return claim_and_start(steps, job_id, ttl_ms)
    except (LeaseConflictError, NotClaimable, InvalidTransition, NotFound, SignatureInvalid):
        return None
