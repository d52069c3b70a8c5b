"""When the patience with a job is over: with its silence, its lease, its tries, its return."""

from holdfast.core.model import Job, Micros, StallReason, Status

MS = 1_000
SILENCE = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED})
"""The reasons of a stall past `stall_limit`. Which of the two it is depends on the job alone: see `silence_reason`."""


def _silence_limit(job: Job) -> Micros:
    assert job.policy is not None and job.last_beat_at is not None
    return job.last_beat_at + job.policy.stall_after_ms * MS


def stall_limit(job: Job) -> Micros:
    """The time past which the system may call a held job stalled: silence or the lease's end, whichever comes first."""
    assert job.lease_expires_at is not None
    return min(_silence_limit(job), job.lease_expires_at)


def silence_reason(job: Job) -> StallReason:
    """The reason of a stall past `stall_limit`: the same for a sweep, a claim, a returning holder and a server elsewhere.

    A running job whose holder is silent has NO_HEARTBEAT, also where its lease ends at the same moment. LEASE_EXPIRED is for
    a lease that ends before the limit of silence, and for an attempt that was never started.
    """
    assert job.lease_expires_at is not None
    if job.started_at is None or job.lease_expires_at < _silence_limit(job):
        return StallReason.LEASE_EXPIRED
    return StallReason.NO_HEARTBEAT


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
