"""What the verbs are made of: each writes one event, or decides between two."""

from typing import Literal

import msgspec

from holdfast.core import payloads
from holdfast.core.deadlines import exhausted, lease_over, silence_reason
from holdfast.core.lifecycle.draft import Draft
from holdfast.core.lifecycle.failure import Failure, failure_of
from holdfast.core.model import SYSTEM, UNDO_KIND, Actor, EventType, ReasonCode, StallReason, Status
from holdfast.core.policy import backoff_us


def stall(draft: Draft, reason: StallReason, *, actor: Actor | None = None, failure: Failure | None = None) -> None:
    """`failure` is what the holder says went wrong."""
    job = draft.job
    body = payloads.Stalled(
        holder=job.owner,
        incarnation=job.incarnation,
        last_beat_at=job.last_beat_at,
        lease_expires_at=job.lease_expires_at,
        detected_at=draft.at_of(actor or draft.command.actor),
        error=payloads.verbatim(failure and failure.error),
        failure_stage=failure and failure.stage.value,
        reason_code=failure and failure.code,
    )
    draft.emit(EventType.STALLED, Status.STALLED, actor=actor, reason=reason.value, payload=body.encode(), policy=job.policy)


def requeue(draft: Draft, delay_us: int, reason: str | None = None, *, released: bool = False) -> None:
    body = payloads.Requeued(available_at=draft.at + delay_us, released=released)
    draft.emit(EventType.REQUEUED, Status.QUEUED, reason=reason, payload=body.encode())


def backoff(draft: Draft, jitter: float) -> int:
    assert draft.job.policy is not None
    return backoff_us(draft.job.policy, draft.job.attempt, jitter)


def requeue_or_exhaust(draft: Draft, jitter: float, reason: str | None = None) -> None:
    if exhausted(draft.job):
        exhaust(draft, failure_of(draft.job))
    else:
        requeue(draft, backoff(draft, jitter), reason)


def exhaust(draft: Draft, failure: Failure) -> None:
    """`failure` is that of the last attempt. Its reason is the reason, where it has one."""
    policy, job = draft.job.policy, draft.job
    assert policy is not None
    code = failure.code or ReasonCode.EXHAUSTED_RETRIES
    if job.kind == UNDO_KIND:
        dead_letter(draft, failure, ReasonCode.COMPENSATION_FAILED)
    elif policy.on_exhausted == "fail":
        fail(draft, failure._replace(code=code), "exhausted")
    else:
        dead_letter(draft, failure, code)


def dead_letter(draft: Draft, failure: Failure, code: ReasonCode) -> None:
    job = draft.job
    body = payloads.DeadLettered(
        reason_code=code.value,
        failure_stage=failure.stage.value,
        last_error=msgspec.Raw(payloads.NULL if failure.error is None else failure.error),
        attempts=job.attempt,
        last_owner=job.owner or job.last_owner,
        last_lease_expires_at=job.lease_expires_at or job.last_lease_expires_at,
        correlation_id=job.correlation_id,
    )
    draft.emit(EventType.DEAD_LETTERED, Status.DEAD_LETTERED, reason=code.value, payload=body.encode())


def fail(draft: Draft, failure: Failure, kind: Literal["permanent", "exhausted"]) -> None:
    """The event's reason is the reason code, or `permanent`."""
    assert failure.error is not None
    body = payloads.Failed(
        error=msgspec.Raw(failure.error),
        failure=kind,
        failure_stage=failure.stage.value,
        reason_code=failure.code,
    )
    draft.emit(EventType.FAILED, Status.FAILED, reason=failure.code or kind, payload=body.encode())


def cancel(draft: Draft, reason: str, body: payloads.Cancelled | None = None) -> None:
    draft.emit(EventType.CANCELLED, Status.CANCELLED, reason=reason, payload=None if body is None else body.encode())


def exit_safely(draft: Draft, comment: str | None = None, failure: Failure | None = None) -> None:
    """The holder of an aborting job ends its work: the job is cancelled, for the reason that was given with the cancel."""
    body = None
    if comment is not None or failure is not None:
        body = payloads.Cancelled(
            comment=comment,
            error=payloads.verbatim(failure and failure.error),
            failure_stage=failure and failure.stage.value,
            reason_code=failure and failure.code,
        )
    cancel(draft, draft.job.cancel_reason or "requested", body)


def return_of_holder(draft: Draft, reason: str | None = None) -> None:
    """A holder that comes back late, before anybody else has its job, loses no work: what happened is put on record first."""
    job = draft.job
    if job.status is Status.RUNNING and lease_over(job, draft.at):
        stall(draft, silence_reason(job), actor=SYSTEM)
    if draft.job.status is Status.STALLED and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING, reason=reason)
