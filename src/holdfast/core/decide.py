"""decide(job, command, now): what a command does to a job, as events.

All rules of the state machine are here, in the table and in the modules of the verbs. A refusal is raised and changes nothing.
Rows are never edited: each event is folded in with `evolve`, so what decide answers and what a reader folds later are the same
by construction.
"""

from functools import partial
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import control_verbs, holder_verbs, payloads
from holdfast.core.draft import Decision, Draft, check_role, invalid_transition
from holdfast.core.model import TERMINAL, Actor, EventRecord, EventType, Fence, JobRecord, Micros, Role, Status
from holdfast.core.table import roles_without_fence
from holdfast.errors import Conflict, FenceLost, NotFound

__all__ = ["Decision", "decide", "enqueued_event", "holder_of", "replay_command"]

_DECISIONS = holder_verbs.VERBS | {command: decision for command, (_, decision) in control_verbs.VERBS.items()}


def decide(job: JobRecord | None, command: c.JobCommand, now: Micros) -> Decision:
    """What `command` does to `job` at ledger time `now`, or a refusal."""
    if job is None:
        raise NotFound(f"there is no job {command.job_id}", job_id=command.job_id)
    fence: Fence | None = getattr(command, "fence", None)
    if fence is not None:
        command = as_holder(job, fence, command, now)
    elif (by_others := control_verbs.VERBS.get(type(command))) is not None:
        check_role(by_others[0], command.actor, roles_without_fence(by_others[0]))
    if command.expected_rev is not None and command.expected_rev != job.rev:
        raise Conflict(
            f"job {job.id} is at rev {job.rev}, not {command.expected_rev}",
            expected_rev=command.expected_rev,
            **job.held_by,
        )
    draft = Draft(job, now, command)
    _DECISIONS[type(command)](draft, command)
    return draft.outcome()


def as_holder(job: JobRecord, fence: Fence, command: Any, now: Micros) -> c.JobCommand:
    """`command` in the name of the holder that its fence, or what it signed, proves it to be."""
    signed: c.SignedStatement | None = getattr(command, "signed", None)
    holder = holder_of(job, fence, signed)
    if signed is not None:
        signed.check_holder(job, command, holder, now)
    return msgspec.structs.replace(command, actor=holder)  # type: ignore[no-any-return]


def holder_of(job: JobRecord, fence: Fence, signed: c.SignedStatement | None = None) -> Actor:
    """The holder behind `fence`, or fence_lost. Compared as a whole: an attempt alone proves nothing.

    Without its token, a statement that names this attempt and the worker and incarnation it was given to proves the same: only
    that worker has the key, only that boot of it has the incarnation, and as with the token, whoever was given an earlier
    attempt, or has restarted since, is not the one. It dies with the token, too. What the token does not have, its counter
    gives: nobody who reads a statement on its way can use it again.
    """
    holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
    is_told = fence.token == job.token or (not fence.token and signed is not None and signed.signer == holder)
    if job.token is None or fence.attempt != job.attempt or not is_told:
        raise FenceLost(
            f"job {job.id} is no longer yours: attempt {job.attempt} is {job.status.value}"
            + (f", held by {job.owner}" if job.owner else ""),
            **job.held_by,
        )
    return holder


def enqueued_event(job_id: int, command: c.Enqueue, now: Micros, correlation_id: str) -> EventRecord:
    """The first event of a new job."""
    return EventRecord(
        job_id=job_id,
        rev=1,
        type=EventType.ENQUEUED,
        received_at=now,
        actor=command.actor,
        attempt=0,
        from_status=None,
        to_status=Status.QUEUED,
        reason=command.reason,
        request_id=command.request_id,
        payload=command.payload,
        correlation_id=correlation_id,
        trace_id=command.trace_id,
    )


def replay_command(job: JobRecord, command: c.Replay) -> c.Enqueue:
    """The new job that repeats a finished one, with everything the first was given. A key held forever stays with the first."""
    check_role("replay", command.actor, frozenset({Role.OPERATOR}))
    if job.status not in TERMINAL - {Status.SUCCEEDED}:
        raise invalid_transition("replay", job)
    key = None if job.dedupe_forever else job.dedupe_key
    body = payloads.EnqueuedPayload(
        queue=job.queue,
        kind=job.kind,
        args=msgspec.Raw(job.args),
        priority=job.priority,
        dedupe_key=key,
        tier=job.tier,
        policy=payloads.to_optional_json(job.override),
        replay_of=job.id,
        depends_on=job.depends_on,
        on_dependency_failure=job.on_dependency_failure,
    )
    linked = partial(c.EnqueueLinked, depends_on=job.depends_on)
    return (linked if job.depends_on else c.Enqueue)(
        actor=command.actor,
        request_id=command.request_id,
        queue=job.queue,
        kind=job.kind,
        payload=body.encode(),
        priority=job.priority,
        dedupe_key=key,
        tier=job.tier,
        override=job.override,
        correlation_id=job.correlation_id,
        trace_id=job.trace_id,
        replay_of=job.id,
        reason=command.reason,
    )
