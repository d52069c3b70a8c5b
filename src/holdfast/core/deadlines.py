"""Heartbeat, lease, attempt, resume-window and cancel-grace limits of a job."""

from holdfast.core.model import JobRecord, Micros, Phase, StallReason, Status

US_PER_MS = 1_000
SILENCE_REASONS = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED})
"""The reasons of a stall past `stall_limit`. Which of the two it is depends on the job alone: see `silence_reason`."""


def _silence_limit(job: JobRecord) -> Micros:
    assert job.policy is not None and job.last_beat_at is not None
    return job.last_beat_at + job.policy.stall_after_ms * US_PER_MS


def stall_limit(job: JobRecord) -> Micros:
    """The time past which the system may call a held job stalled: silence or the lease's end, whichever comes first."""
    assert job.lease_expires_at is not None
    return min(_silence_limit(job), job.lease_expires_at)


def silence_reason(job: JobRecord) -> StallReason:
    """The reason of a stall past `stall_limit`: the same for a sweep, a claim, a returning holder and a server elsewhere.

    A running job whose holder is silent has NO_HEARTBEAT, also where its lease ends at the same moment. LEASE_EXPIRED is for
    a lease that ends before the limit of silence, and for an attempt that was never started.
    """
    assert job.lease_expires_at is not None
    if job.started_at is None or job.lease_expires_at < _silence_limit(job):
        return StallReason.LEASE_EXPIRED
    return StallReason.NO_HEARTBEAT


def progress_limit(job: JobRecord) -> Micros | None:
    """The time past which a running job that beats without moving counts as stalled; None where nobody asked for that."""
    assert job.policy is not None
    if job.status is not Status.RUNNING or job.policy.progress_timeout_ms is None or job.progressed_at is None:
        return None
    return job.progressed_at + job.policy.progress_timeout_ms * US_PER_MS


def counted_attempts(job: JobRecord) -> int:
    """Attempts that count."""
    return job.attempt - job.releases


def attempts_exhausted(job: JobRecord) -> bool:
    return job.policy is not None and counted_attempts(job) >= job.policy.attempts_max


def resume_window_ends_at(job: JobRecord, fresh: Micros = 0) -> Micros:
    """When a stalled job stops waiting for its holder; counted anew from a step of the clock.

    A holder that had not begun cannot be resumed by others, but while it beats it is waited for.
    """
    assert job.policy is not None and job.stalled_at is not None
    window = job.policy.resume_window_ms * US_PER_MS
    over = max(job.stalled_at, fresh) + window if window else job.stalled_at
    return over if job.revived_at is None else max(over, job.revived_at + job.policy.stall_after_ms * US_PER_MS)


def lease_expired(job: JobRecord, now: Micros) -> bool:
    return job.lease_expires_at is not None and now > job.lease_expires_at


def due_stall(job: JobRecord, now: Micros, wanted: StallReason | None = None) -> StallReason | None:
    """Why the system may stall a held job now, for the reason it wants to give if it names one; None while it may not."""
    if wanted is not StallReason.NO_PROGRESS and now > stall_limit(job):
        return silence_reason(job)
    moved_by = progress_limit(job)
    if wanted in (None, StallReason.NO_PROGRESS) and moved_by is not None and now > moved_by:
        return StallReason.NO_PROGRESS
    return None


def is_excused(job: JobRecord, now: Micros, fresh: Micros) -> bool:
    """After a step of the clock everyone gets one fresh interval to show a sign of life.

    `now` is the ledger's own time. A job's time does not go back with it: it would be past the interval at once.
    """
    assert job.policy is not None
    return now <= fresh + job.policy.stall_after_ms * US_PER_MS


def cancel_grace_over(job: JobRecord, now: Micros, fresh: Micros) -> bool:
    if job.status not in (Status.RUNNING, Status.STALLED) or job.cancel_requested_at is None or job.policy is None:
        return False
    return job.phase is Phase.ABORTING and now > max(job.cancel_requested_at, fresh) + job.policy.cancel_grace_ms * US_PER_MS
