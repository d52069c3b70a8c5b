"""Check every job and every history of the demo."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from holdfast import Event, EventType, Fence, Job, Ledger, Status
from holdfast.demo.workers import DemoError


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class DemoReport(NamedTuple):
    """The figures of a demo that was verified."""

    jobs: int
    events: int
    recorded_by: dict[str, int]
    silence_s: float
    """From the killed worker's last event until the job was stalled."""
    recovery_s: float
    """From the killed worker's last event until the next claim."""
    recovery_s_max: float
    """The longest recovery by policy and sweeper on a machine that is not overloaded."""


def verify_demo(ledger: Ledger, texts: Mapping[int, str], lost: Fence, recovery_s_max: float) -> DemoReport:
    """Check every job, its history and its recorded worker. Raise DemoError for the first fault."""
    jobs = [ledger.get(id_) for id_ in texts]
    for job in jobs:
        verify_job(ledger, job, texts[job.id], lost=job.id == lost.job_id)
        if job.result["by"] == lost.worker and job.id == lost.job_id:
            raise DemoError(f"job {job.id} has the result of the killed worker")
    history = ledger.events(lost.job_id)
    stalled = next(n for n, event in enumerate(history) if event.type is EventType.STALLED)
    last_at = history[stalled - 1].received_at
    [claimed_at] = [event.received_at for event in history[stalled:] if event.type is EventType.CLAIMED]
    silence_s = (history[stalled].received_at - last_at).total_seconds()
    _verify_stall_time(history[stalled], silence_s)
    return DemoReport(
        jobs=len(jobs),
        events=sum(job.rev for job in jobs),
        recorded_by=dict(sorted(Counter(job.result["by"] for job in jobs).items())),
        silence_s=silence_s,
        recovery_s=(claimed_at - last_at).total_seconds(),
        recovery_s_max=recovery_s_max,
    )


def verify_job(ledger: Ledger, job: Job, text: str, *, lost: bool) -> None:
    violations = ledger.check(job.id)
    if violations:
        raise DemoError(f"the history of job {job.id} is not valid: {violations[0]}")
    if job.status is not Status.SUCCEEDED or job.result["sha256"] != digest(text):
        raise DemoError(f"job {job.id} is {job.status.value} with the result {job.result}")
    if (job.attempt > 1) != lost:
        raise DemoError(f"job {job.id} took {job.attempt} attempts")
    recorded = actor_name(ledger.events(job.id, types=[EventType.SUCCEEDED])[0])
    if recorded != job.result["by"]:
        raise DemoError(f"job {job.id} was done by {job.result['by']}, but the ledger has recorded {recorded}")


def _verify_stall_time(stalled: Event, silence_s: float) -> None:
    """Raise DemoError if the job was stalled before its policy's limit."""
    allowed_s = stalled.payload["policy"]["stall_after_ms"] / 1_000
    if silence_s < allowed_s:
        raise DemoError(f"a job was stalled after {silence_s:g} s without a heartbeat, its policy allows {allowed_s:g} s")


def actor_name(event: Event) -> str:
    """Return the actor without role and incarnation."""
    return event.actor.partition(":")[2].partition("#")[0]
