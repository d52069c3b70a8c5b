"""The verbs of the worker that holds a job or claims it."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.deadlines import (
    attempts_exhausted,
    is_excused,
    lease_expired,
    resume_window_ends_at,
    silence_reason,
    stall_limit,
)
from holdfast.core.draft import (
    AttemptFailure,
    Draft,
    backoff_delay_us,
    cancel_by_holder,
    dead_letter,
    exhaust,
    fail,
    record_late_return,
    requeue,
    require_status,
    stall,
)
from holdfast.core.liveness import check_gate, receipt_of
from holdfast.core.model import (
    ASSIST_REQUESTED,
    HELD,
    SYSTEM,
    TERMINAL,
    EventType,
    FailureStage,
    JobRecord,
    Micros,
    Phase,
    Policy,
    StallReason,
    Status,
)
from holdfast.core.policy import with_ttl
from holdfast.core.undo import check_reason_code, check_undo
from holdfast.errors import InvalidTransition, LeaseConflictError, NotClaimable, RefusedByValidator


def claim_job(draft: Draft, command: c.ClaimJob) -> None:
    """Renew the caller's own live lease, or start a new attempt.

    A claim never resumes an attempt: only heartbeats and final verbs do.
    """
    job = draft.job
    if job.status is not Status.QUEUED:
        require_status("claim by id", job)
    own = job.is_of(command.actor)
    if job.status in HELD and own and not lease_expired(job, draft.at):
        if draft.signed is not None:
            draft.signed.check_holder(job, command, command.actor, draft.now)
        draft.emit(EventType.HEARTBEAT, policy=renewed_policy(job, command))
        return
    if job.status in HELD:
        if not own and (draft.at <= stall_limit(job) or is_excused(job, draft.now, command.fresh_since or 0)):
            raise LeaseConflictError(f"job {job.id} is held by {job.owner}", **job.held_by)
        stall(draft, silence_reason(job), actor=SYSTEM)
    check_claimable(draft, command, own=own)
    assert command.policy is not None
    policy = command.policy if command.ttl_ms is None else with_ttl(command.policy, command.ttl_ms)
    draft.emit(EventType.CLAIMED, Status.CLAIMED, policy=policy)
    draft.job = msgspec.structs.replace(draft.job, token=command.token + policy.token_tail)


def renewed_policy(job: JobRecord, command: c.ClaimJob) -> Policy | None:
    """Return the policy of a lease that is renewed with another length, or None if the policy stays the same.

    It is the attempt's snapshot with another length, not the current policy of the kind. What must be signed therefore stays
    as the fence's token says.
    """
    assert job.policy is not None
    if command.ttl_ms is None or command.keeps_ttl:
        return None
    policy = with_ttl(job.policy, command.ttl_ms)
    return None if policy == job.policy else policy


def check_claimable(draft: Draft, command: c.ClaimJob, *, own: bool) -> None:
    """Raise NotClaimable unless the job can be claimed now.

    `available_at` is compared with the ledger's clock (`draft.now`), not with the job's own time (`draft.at`). `own` is True
    if the last holder claims. The resume window reserves a stalled job for that worker, so it may claim within the window.
    """
    job = draft.job
    why: str | None = None
    until: Micros | None = None
    if job.is_waiting:
        raise NotClaimable(
            f"job {job.id} cannot be claimed: it waits for {len(job.waits_for)} other jobs",
            why="dependency",
            until=None,
            waits_for=list(job.waits_for),
            **job.held_by,
        )
    if command.paused:
        why = "paused"
    elif job.status is Status.QUEUED and job.available_at > draft.now:
        why, until = "backoff" if job.attempt else "scheduled", job.available_at
    elif job.status is Status.STALLED:
        if job.phase is Phase.ABORTING:
            why = "cancelling"
        elif attempts_exhausted(job):
            why = "exhausted"
        elif draft.at < resume_window_ends_at(job) and not own:
            why, until = "resume_window", resume_window_ends_at(job)
    if why is None and command.refusal is not None:
        why, words = command.refusal
        raise NotClaimable(f"job {job.id} cannot be claimed: {words}", why=why, until=None, **job.held_by)
    if why is not None:
        raise NotClaimable(f"job {job.id} cannot be claimed: {why}", why=why, until=until, **job.held_by)


def start(draft: Draft, command: c.Start) -> None:
    job = draft.job
    if job.status is Status.CLAIMED and lease_expired(job, draft.at):
        stall(draft, silence_reason(job), actor=SYSTEM)
    if draft.job.status is Status.STALLED and job.started_at is None:
        draft.emit(EventType.RESUMED, Status.RUNNING)
        return
    require_status("start", job)
    draft.emit(EventType.STARTED, Status.RUNNING)


def heartbeat(draft: Draft, command: c.Heartbeat) -> None:
    job = draft.job
    require_status("heartbeat", job)
    if job.status is Status.RUNNING:
        record_late_return(draft)
    elif job.status is Status.CLAIMED and lease_expired(job, draft.at):
        stall(draft, silence_reason(job), actor=SYSTEM)
    check_undo(draft.job, command.beat)
    is_new_request = bool(command.beat.assist_requested) and not draft.job.assist_requested
    draft.emit(
        EventType.HEARTBEAT,
        reason=ASSIST_REQUESTED if is_new_request else None,
        payload=payloads.beat_payload(command.beat),
    )


def complete(draft: Draft, command: c.Complete) -> None:
    record_late_return(draft)
    require_status("complete", draft.job)
    check_objection(draft, command)
    draft.emit(EventType.SUCCEEDED, Status.SUCCEEDED, payload=command.payload)


def complete_gated(draft: Draft, command: c.CompleteGated) -> None:
    """Complete the job if its holder passes the gate.

    A holder whose lease is over does not pass. Unlike `complete`, this does not record its late return first.
    """
    if draft.job.status not in TERMINAL:
        check_gate(draft.job, receipt_of(draft.job, draft.at), draft.at)
    require_status("complete", draft.job)
    check_objection(draft, command)
    draft.emit(EventType.SUCCEEDED, Status.SUCCEEDED, payload=command.payload)


def check_objection(draft: Draft, command: c.Complete) -> None:
    """Raise RefusedByValidator if a validator objects to the result. The job stays as it was before the command."""
    if command.objection is not None:
        job = draft.job
        refused = RefusedByValidator(
            f"job {job.id} is not completed: {command.objection.message}", job_id=job.id, attempt=job.attempt
        )
        if command.objection.retryable:
            refused.retryable = True
            refused.action = "The message says why. The job is still yours: complete it again later, or fail it."
        raise refused


def fail_job(draft: Draft, command: c.Fail) -> None:
    record_late_return(draft)
    require_status("fail", draft.job)
    check_reason_code(draft.job, command.reason_code)
    failure = AttemptFailure(command.error, command.failure_stage or FailureStage.EXEC, command.reason_code)
    if not command.retryable:
        if command.reason_code is None:
            fail(draft, failure, "permanent")
        else:
            dead_letter(draft, failure, command.reason_code)
    elif draft.job.phase is Phase.ABORTING:
        cancel_by_holder(draft, failure=failure)
    elif attempts_exhausted(draft.job):
        exhaust(draft, failure)
    else:
        stall(draft, StallReason.TRANSIENT_ERROR, failure=failure)
        requeue(draft, backoff_delay_us(draft, command.jitter) if command.retry_after_us is None else command.retry_after_us)


def release(draft: Draft, command: c.Release) -> None:
    record_late_return(draft)
    require_status("release", draft.job)
    if draft.job.status is not Status.STALLED:
        stall(draft, StallReason.RELEASED)
    if draft.job.phase is Phase.ABORTING:
        cancel_by_holder(draft, command.reason)
    else:
        requeue(draft, 0, command.reason or StallReason.RELEASED.value, released=True)


def acknowledge_cancel(draft: Draft, command: c.AcknowledgeCancel) -> None:
    record_late_return(draft)
    require_status("acknowledge_cancel", draft.job)
    if draft.job.phase is not Phase.ABORTING:
        raise InvalidTransition(f"no cancel was requested for job {draft.job.id}", verb="acknowledge_cancel", **draft.job.held_by)
    cancel_by_holder(draft, command.reason)


VERBS: dict[type[c.JobCommand], Callable[[Draft, Any], None]] = {
    c.ClaimJob: claim_job,
    c.Start: start,
    c.Heartbeat: heartbeat,
    c.Complete: complete,
    c.Settle: complete,
    c.CompleteGated: complete_gated,
    c.Fail: fail_job,
    c.Release: release,
    c.AcknowledgeCancel: acknowledge_cancel,
}
