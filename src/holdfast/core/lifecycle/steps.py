"""What the verbs are made of: each writes one event, or decides between two."""

import msgspec

from holdfast.core import payloads
from holdfast.core.deadlines import exhausted, lease_over, silence_reason
from holdfast.core.lifecycle.draft import Draft
from holdfast.core.model import SYSTEM, UNDO_KIND, Actor, EventType, FailureStage, ReasonCode, StallReason, Status
from holdfast.core.policy import backoff_us


def stall(draft: Draft, reason: StallReason, *, actor: Actor | None = None, error: bytes | None = None) -> None:
    job = draft.job
    body = payloads.Stalled(
        holder=job.owner,
        incarnation=job.incarnation,
        last_beat_at=job.last_beat_at,
        lease_expires_at=job.lease_expires_at,
        detected_at=draft.at_of(actor or draft.command.actor),
        error=payloads.verbatim(error),
    )
    draft.emit(EventType.STALLED, Status.STALLED, actor=actor, reason=reason.value, payload=body.encode(), policy=job.policy)


def requeue(draft: Draft, delay_us: int, reason: StallReason | None = None) -> None:
    body = payloads.Requeued(available_at=draft.at + delay_us)
    draft.emit(EventType.REQUEUED, Status.QUEUED, reason=None if reason is None else reason.value, payload=body.encode())


def backoff(draft: Draft, jitter: float) -> int:
    assert draft.job.policy is not None
    return backoff_us(draft.job.policy, draft.job.attempt, jitter)


def requeue_or_exhaust(draft: Draft, jitter: float) -> None:
    if exhausted(draft.job):
        exhaust(draft, None, None)
    else:
        requeue(draft, backoff(draft, jitter))


def exhaust(draft: Draft, error: bytes | None, stage: FailureStage | None) -> None:
    policy, job = draft.job.policy, draft.job
    assert policy is not None
    if job.kind == UNDO_KIND:
        dead_letter(draft, ReasonCode.COMPENSATION_FAILED, stage or FailureStage.EXEC, error)
    elif policy.on_exhausted == "fail":
        last = error or job.last_error or msgspec.json.encode({"message": f"stalled: {job.stall_reason}"})
        fail(draft, last)
    else:
        dead_letter(draft, ReasonCode.EXHAUSTED_RETRIES, stage or FailureStage.EXEC, error)


def dead_letter(draft: Draft, code: ReasonCode, stage: FailureStage, error: bytes | None) -> None:
    job = draft.job
    last_error = error if error is not None else job.last_error
    body = payloads.DeadLettered(
        reason_code=code.value,
        failure_stage=stage.value,
        last_error=msgspec.Raw(payloads.NULL if last_error is None else last_error),
        attempts=job.attempt,
        last_owner=job.owner or job.last_owner,
        last_lease_expires_at=job.lease_expires_at or job.last_lease_expires_at,
        correlation_id=job.correlation_id,
    )
    draft.emit(EventType.DEAD_LETTERED, Status.DEAD_LETTERED, reason=code.value, payload=body.encode())


def fail(draft: Draft, error: bytes) -> None:
    draft.emit(EventType.FAILED, Status.FAILED, payload=payloads.Failed(error=msgspec.Raw(error)).encode())


def cancel(draft: Draft, reason: str) -> None:
    draft.emit(EventType.CANCELLED, Status.CANCELLED, reason=reason)


def return_of_holder(draft: Draft) -> None:
    """A holder that comes back late, before anybody else has its job, loses no work: what happened is put on record first."""
    job = draft.job
    if job.status is Status.RUNNING and lease_over(job, draft.at):
        stall(draft, silence_reason(job), actor=SYSTEM)
    if draft.job.status is Status.STALLED and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING)
