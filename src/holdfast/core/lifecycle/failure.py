"""What ended an attempt that failed: its error, the stage it broke in, and the reason that a dead letter gives."""

from typing import NamedTuple

import msgspec

from holdfast.core.model import HELD, FailureStage, Job, ReasonCode, StallReason, Status

REASONS = {
    StallReason.NO_HEARTBEAT: ReasonCode.INFRASTRUCTURE_FAILURE,
    StallReason.LEASE_EXPIRED: ReasonCode.INFRASTRUCTURE_FAILURE,
    StallReason.NO_PROGRESS: ReasonCode.TIMEOUT,
    StallReason.OPERATOR_QUEUE_TIMEOUT: ReasonCode.TIMEOUT,
}
"""Why an attempt failed that stalled without an error: its worker was lost, or it took too long."""


class Failure(NamedTuple):
    """`code` is None where the attempt itself gave no reason."""

    error: bytes | None = None
    stage: FailureStage = FailureStage.EXEC
    code: ReasonCode | None = None


def failure_of(job: Job) -> Failure:
    """The failure that ended the newest attempt. An attempt that is held or was released has none.

    `last_error` alone does not tell: it may be of an earlier attempt. The stage belongs to the newest stall.
    """
    is_released = job.status is Status.QUEUED and job.stall_reason == StallReason.RELEASED
    if job.status in HELD or job.stall_reason is None or is_released:
        return Failure()
    reason = StallReason(job.stall_reason)
    if job.failure_stage is not None or _failed_without_stage(job):
        stage = FailureStage(job.failure_stage or FailureStage.EXEC)
        return Failure(job.last_error, stage, None if job.reason_code is None else ReasonCode(job.reason_code))
    return Failure(msgspec.json.encode({"message": f"stalled: {reason.value}"}), code=REASONS.get(reason))


def _failed_without_stage(job: Job) -> bool:
    """A failure that an earlier release recorded without its stage. Such a job was requeued at once.

    A job that is still stalled for TRANSIENT_ERROR and has no stage was stalled by its holder, without an error.
    """
    return job.status is Status.QUEUED and job.stall_reason == StallReason.TRANSIENT_ERROR and job.last_error is not None
