"""When somebody has been silent for too long."""

from holdfast.core.deadlines import MS, progress_limit, silence_reason, stall_limit
from holdfast.core.model import Job, Micros, Phase, StallReason, Status


def due_stall(job: Job, now: Micros, wanted: StallReason | None = None) -> StallReason | None:
    """Why the system may stall a held job now, for the reason it wants to give if it names one; None while it may not."""
    if wanted is not StallReason.NO_PROGRESS and now > stall_limit(job):
        return silence_reason(job)
    moved_by = progress_limit(job)
    if wanted in (None, StallReason.NO_PROGRESS) and moved_by is not None and now > moved_by:
        return StallReason.NO_PROGRESS
    return None


def excused(job: Job, now: Micros, fresh: Micros) -> bool:
    """After a step of the clock everyone gets one fresh interval to show a sign of life.

    `now` is the ledger's own time. A job's time does not go back with it: it would be past the interval at once.
    """
    assert job.policy is not None
    return now <= fresh + job.policy.stall_after_ms * MS


def grace_over(job: Job, now: Micros, fresh: Micros) -> bool:
    if job.status not in (Status.RUNNING, Status.STALLED) or job.cancel_requested_at is None or job.policy is None:
        return False
    return job.phase is Phase.ABORTING and now > max(job.cancel_requested_at, fresh) + job.policy.cancel_grace_ms * MS
