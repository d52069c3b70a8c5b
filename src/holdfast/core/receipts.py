"""What a job's row says of the liveness of its newest attempt, as a receipt for the gate."""

import hashlib

import msgspec

from holdfast.core.deadlines import progress_limit, stall_limit, tries
from holdfast.core.liveness import (
    HealthVerdict,
    LivenessGateDenial,
    LivenessHeartbeatReceiptV1,
    check_liveness_for_progression,
)
from holdfast.core.model import HELD, Fence, Job, Micros, StallReason, Status
from holdfast.errors import GateDenied

TICK_US = 1_000
"""A tick is one millisecond of ledger time."""
EPISODE_DOMAIN = b"holdfast episode v1\n"
BEAT_DOMAIN = b"holdfast beat v1\n"


def tick(at: Micros) -> int:
    return at // TICK_US


def receipt_of(job: Job, now: Micros) -> LivenessHeartbeatReceiptV1 | None:
    """The receipt of whoever holds `job`, or held it until it stalled; None for a job that nobody has to answer for.

    It is dated by the attempt's newest beat and tells what was so then; only the verdict depends on `now`. The same row and
    the same side of its limits give the same receipt.
    """
    policy = job.policy
    if job.status not in {*HELD, Status.STALLED} or policy is None or job.token is None or job.last_beat_at is None:
        return None
    verdict, detail = _verdict(job, now)
    beaten_at, started_at = job.last_beat_at, job.started_at or job.last_beat_at
    return LivenessHeartbeatReceiptV1(
        run_id=f"{job.id}-{job.attempt}",
        episode_id=episode_id(Fence(job.id, job.attempt, job.token)),
        emitted_at_tick=tick(beaten_at),
        time_envelope_ref=beat_ref(job),
        health_verdict=verdict,
        restart_count=tries(job) - 1,
        max_restarts=policy.attempts_max - 1,
        uptime_ms=max(0, beaten_at - started_at) // 1_000,
        detail=detail,
    )


def check_gate(job: Job, receipt: LivenessHeartbeatReceiptV1 | None, now: Micros) -> LivenessHeartbeatReceiptV1:
    """`receipt`, if it passes the gate at `now`; it may be as old as the job's policy lets its holder be silent."""
    age_max = 0 if job.policy is None else job.policy.stall_after_ms
    try:
        check_liveness_for_progression(receipt, tick(now), age_max)
    except LivenessGateDenial as denial:
        detail = denial.detail if receipt is not None else f"nobody holds it, it is {job.status.value}"
        raise GateDenied(
            f"job {job.id} may not proceed: {detail}",
            job_id=job.id,
            reason=denial.reason.value,
            detail=detail,
            receipt=None if receipt is None else receipt.to_object(),
        ) from denial
    assert receipt is not None
    return receipt


def episode_id(fence: Fence) -> bytes:
    """SHA-256 of the domain and, in ASCII, each followed by a line feed: job, attempt, token. It does not tell the token."""
    return hashlib.sha256(EPISODE_DOMAIN + f"{fence.job_id}\n{fence.attempt}\n{fence.token}\n".encode()).digest()


def beat_ref(job: Job) -> bytes:
    """SHA-256 of the domain and the JSON array, without blanks, of job, attempt, microseconds of the beat, stage, progress."""
    beat = [job.id, job.attempt, job.last_beat_at, job.stage, job.progress]
    return hashlib.sha256(BEAT_DOMAIN + msgspec.json.encode(beat)).digest()


def _verdict(job: Job, now: Micros) -> tuple[HealthVerdict, str | None]:
    if job.status is Status.STALLED:
        if job.revived_at is not None:
            return HealthVerdict.AMBIGUOUS, "a beat came after the stall"
        crashed = job.stall_reason == StallReason.WORKER_ERROR
        return HealthVerdict.CRASHED if crashed else HealthVerdict.STALLED, job.stall_reason
    if now > stall_limit(job):
        return HealthVerdict.STALLED, "silent past its stall limit"
    limit = progress_limit(job)
    if limit is not None and now > limit:
        return HealthVerdict.STALLED, "no progress past its limit"
    return HealthVerdict.HEALTHY, None
