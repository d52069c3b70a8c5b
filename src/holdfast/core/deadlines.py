"""When the patience with a job is over: with its silence, its lease, its tries, its return."""

from holdfast.core.model import Job, Micros, Status

MS = 1_000


def stall_limit(job: Job) -> Micros:
    """The time past which the system may call a held job stalled: silence or the lease's end, whichever comes first."""
    assert job.policy is not None and job.last_beat_at is not None and job.lease_expires_at is not None
    return min(job.last_beat_at + job.policy.stall_after_ms * MS, job.lease_expires_at)


def progress_limit(job: Job) -> Micros | None:
    """The time past which a running job that beats without moving counts as stalled; None where nobody asked for that."""
    assert job.policy is not None
    if job.status is not Status.RUNNING or job.policy.progress_timeout_ms is None or job.progressed_at is None:
        return None
    return job.progressed_at + job.policy.progress_timeout_ms * MS


def tries(job: Job) -> int:
    """Attempts that count."""
    return job.attempt - job.releases


def exhausted(job: Job) -> bool:
    return job.policy is not None and tries(job) >= job.policy.attempts_max


def window_over_at(job: Job, fresh: Micros = 0) -> Micros:
    """When a stalled job stops waiting for its holder; counted anew from a step of the clock.

    A holder that had not begun cannot be resumed by others, but while it beats it is waited for.
    """
    assert job.policy is not None and job.stalled_at is not None
    window = job.policy.resume_window_ms * MS
    over = max(job.stalled_at, fresh) + window if window else job.stalled_at
    return over if job.revived_at is None else max(over, job.revived_at + job.policy.stall_after_ms * MS)


def lease_over(job: Job, now: Micros) -> bool:
    return job.lease_expires_at is not None and now > job.lease_expires_at
