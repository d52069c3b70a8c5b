"""Heartbeat, lease, attempt, resume-window and cancel-grace limits of a job."""

from holdfast.core.model import JobRecord, Micros, Phase, StallReason, Status

US_PER_MS = 1_000
SILENCE_REASONS = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED})
"""The reasons of a stall past `stall_limit`. Which one applies depends on the job alone: see `silence_reason`."""


def _silence_limit(job: JobRecord) -> Micros:
    assert job.policy is not None and job.last_beat_at is not None
    return job.last_beat_at + job.policy.stall_after_ms * US_PER_MS


def stall_limit(job: JobRecord) -> Micros:
    """Return the time after which the system may stall a held job: the silence limit or the lease's end, the earlier one."""
    assert job.lease_expires_at is not None
    return min(_silence_limit(job), job.lease_expires_at)


def silence_reason(job: JobRecord) -> StallReason:
    """Return the reason of a stall past `stall_limit`. Sweeps, claims, returning holders and other servers all use it.

    NO_HEARTBEAT is for a running job whose holder is silent, also if its lease ends at the same time. LEASE_EXPIRED is for a
    lease that ends before the silence limit, and for an attempt that was never started.
    """
    assert job.lease_expires_at is not None
    if job.started_at is None or job.lease_expires_at < _silence_limit(job):
        return StallReason.LEASE_EXPIRED
    return StallReason.NO_HEARTBEAT


def progress_limit(job: JobRecord) -> Micros | None:
    """Return the time after which a running job without progress counts as stalled, or None if the policy sets no limit."""
    assert job.policy is not None
    if job.status is not Status.RUNNING or job.policy.progress_timeout_ms is None or job.progressed_at is None:
        return None
    return job.progressed_at + job.policy.progress_timeout_ms * US_PER_MS


def counted_attempts(job: JobRecord) -> int:
    """Return the number of attempts that count against attempts_max. Released ones do not."""
    return job.attempt - job.releases


def attempts_exhausted(job: JobRecord) -> bool:
    return job.policy is not None and counted_attempts(job) >= job.policy.attempts_max


def resume_window_ends_at(job: JobRecord, fresh: Micros = 0) -> Micros:
    """Return when a stalled job stops waiting for its holder. After a clock step at `fresh` the window starts again.

    The system cannot resume an attempt that had not started. While its holder sends heartbeats, the window is extended.
    """
    assert job.policy is not None and job.stalled_at is not None
    window = job.policy.resume_window_ms * US_PER_MS
    over = max(job.stalled_at, fresh) + window if window else job.stalled_at
    return over if job.revived_at is None else max(over, job.revived_at + job.policy.stall_after_ms * US_PER_MS)


def lease_expired(job: JobRecord, now: Micros) -> bool:
    return job.lease_expires_at is not None and now > job.lease_expires_at


def due_stall(job: JobRecord, now: Micros, wanted: StallReason | None = None) -> StallReason | None:
    """Return the reason for which the system may stall a held job now, or None. `wanted` limits it to one kind of reason."""
    if wanted is not StallReason.NO_PROGRESS and now > stall_limit(job):
        return silence_reason(job)
    progress_due_at = progress_limit(job)
    if wanted in (None, StallReason.NO_PROGRESS) and progress_due_at is not None and now > progress_due_at:
        return StallReason.NO_PROGRESS
    return None


def is_excused(job: JobRecord, now: Micros, fresh: Micros) -> bool:
    """Return whether a clock step at `fresh` still excuses silence. Every holder gets one `stall_after` to send a heartbeat.

    `now` must be the ledger's clock, not the job's own time. If the clock steps back, the job's time does not, and would be
    past the interval at once.
    """
    assert job.policy is not None
    return now <= fresh + job.policy.stall_after_ms * US_PER_MS


def cancel_grace_over(job: JobRecord, now: Micros, fresh: Micros) -> bool:
    if job.status not in (Status.RUNNING, Status.STALLED) or job.cancel_requested_at is None or job.policy is None:
        return False
    return job.phase is Phase.ABORTING and now > max(job.cancel_requested_at, fresh) + job.policy.cancel_grace_ms * US_PER_MS
