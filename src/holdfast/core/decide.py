"""Decide what a command does to a job.

`decide(job, command, now)` is a pure function. It gets the job's row, a command and the ledger's time, and returns a
`Decision`: the events to append and the job after them. The caller stores both in one transaction. A refusal is an exception
from `holdfast.errors`. It changes nothing and leaves no event.

A decision is made in this order:

1. The job must exist, else NotFound.
2. The actor must be allowed to give the command. A command with a fence comes from a holder: the fence must be that of the
   job's newest attempt, else FenceLost. For a command without a fence, `core/table.py` says which roles may give it.
3. If the command names an `expected_rev`, it must be the job's revision, else Conflict.
4. The function of the verb runs. It checks that the job's status allows the verb, checks the verb's own rules, and emits
   events into a `Draft`. Verbs of workers are in `holder_verbs.py`, all others in `control_verbs.py`.

A verb never edits the row. `Draft.emit` applies each event with `evolve`, and so does every reader that folds the history
later. Both therefore get the same job.
"""

from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import control_verbs, holder_verbs, payloads, windows
from holdfast.core.draft import Decision, Draft, check_role, invalid_transition
from holdfast.core.model import TERMINAL, Actor, EventRecord, EventType, Fence, JobRecord, Micros, Role, Status
from holdfast.core.table import roles_without_fence
from holdfast.errors import Conflict, FenceLost, NotFound

__all__ = [
    "Decision",
    "decide",
    "enqueued_event",
    "holder_of",
    "missing_job_error",
    "replay_command",
    "rev_conflict_error",
]

_VERBS = holder_verbs.VERBS | windows.VERBS | {command: function for command, (_, function) in control_verbs.VERBS.items()}
"""The function of each command."""


def decide(job: JobRecord | None, command: c.JobCommand, now: Micros) -> Decision:
    """Decide `command` on `job` at ledger time `now`. Return the decision or raise a refusal."""
    if job is None:
        raise missing_job_error(command)
    fence: Fence | None = getattr(command, "fence", None)
    if fence is not None:
        command = as_holder(job, fence, command, now)
    elif (control_verb := control_verbs.VERBS.get(type(command))) is not None:
        name, _ = control_verb
        check_role(name, command.actor, roles_without_fence(name))
    if command.expected_rev is not None and command.expected_rev != job.rev:
        raise rev_conflict_error(job, command)
    draft = Draft(job, now, command)
    _VERBS[type(command)](draft, command)
    return draft.decision()


def missing_job_error(command: c.JobCommand) -> NotFound:
    """Return the error for a command on a job that does not exist."""
    return NotFound(f"there is no job {command.job_id}", job_id=command.job_id)


def rev_conflict_error(job: JobRecord, command: c.JobCommand) -> Conflict:
    """Return the error for a command that expects another revision of the job."""
    return Conflict(
        f"job {job.id} is at rev {job.rev}, not {command.expected_rev}",
        expected_rev=command.expected_rev,
        **job.held_by,
    )


def as_holder(job: JobRecord, fence: Fence, command: Any, now: Micros) -> c.JobCommand:
    """Return `command` with the holder as its actor, as its fence or its signed statement proves."""
    signed: c.SignedStatement | None = getattr(command, "signed", None)
    holder = holder_of(job, fence, signed)
    if signed is not None:
        signed.check_holder(job, command, holder, now)
    return msgspec.structs.replace(command, actor=holder)  # type: ignore[no-any-return]


def holder_of(job: JobRecord, fence: Fence, signed: c.SignedStatement | None = None) -> Actor:
    """Return the worker that holds the attempt of `fence`, or raise FenceLost.

    Attempt and token must both match: the attempt number alone proves nothing. A signed statement that names this attempt, its
    worker and its incarnation can replace the token. Only that worker has the key and only that boot of it has the
    incarnation, so the statement of an earlier attempt, or of an earlier boot, does not match. The statement becomes invalid
    together with the token. Its counter prevents that a third party who has read it sends it again.
    """
    holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
    is_proven = fence.token == job.token or (not fence.token and signed is not None and signed.signer == holder)
    if job.token is None or fence.attempt != job.attempt or not is_proven:
        raise FenceLost(
            f"job {job.id} is no longer yours: attempt {job.attempt} is {job.status.value}"
            + (f", held by {job.owner}" if job.owner else ""),
            **job.held_by,
        )
    return holder


def enqueued_event(job_id: int, command: c.Enqueue, now: Micros, correlation_id: str) -> EventRecord:
    """Return the first event of a new job."""
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


def replay_command(job: JobRecord, command: c.Replay, *, in_group: bool = True) -> c.Enqueue:
    """Return the enqueue command that repeats a finished job with the same arguments and options.

    A dedupe key that is held forever stays with the first job. A window begins anew. Without `in_group`, the new job is in no
    group.
    """
    check_role("replay", command.actor, frozenset({Role.OPERATOR}))
    if job.status not in TERMINAL - {Status.SUCCEEDED}:
        raise invalid_transition("replay", job)
    body = payloads.EnqueuedPayload(
        queue=job.queue,
        kind=job.kind,
        args=msgspec.Raw(job.args),
        priority=job.priority,
        dedupe_key=None if job.dedupe_forever else job.dedupe_key,
        dedupe_for_us=windows.length_us(job),
        tier=job.tier,
        policy=payloads.to_optional_json(job.override),
        replay_of=job.id,
        flow=job.flow,
        group=job.group if in_group else None,
        depends_on=job.depends_on,
        on_dependency_failure=job.on_dependency_failure,
    )
    return c.enqueue_of(
        body,
        actor=command.actor,
        request_id=command.request_id,
        correlation_id=job.correlation_id,
        trace_id=job.trace_id,
        reason=command.reason,
    )
