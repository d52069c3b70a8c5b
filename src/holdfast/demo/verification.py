"""Check every job and every history that the demo left behind."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from holdfast import Event, EventType, Fence, Job, Ledger, Status


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class DemoError(Exception):
    """Something is not as it was promised."""


class DemoReport(NamedTuple):
    """What was found, once everything was verified."""

    jobs: int
    events: int
    recorded_by: dict[str, int]
    silence_s: float
    """From the lost worker's last sign of life until the ledger called it stalled."""
    recovery_s: float
    """From there to the next claim."""
    recovery_s_max: float
    """What the policy and the sweep allow on a machine that is not overloaded."""


def verify_demo(ledger: Ledger, texts: Mapping[int, str], lost: Fence, recovery_s_max: float) -> DemoReport:
    """Every job, every history, and who is on record for what."""
    found = [ledger.get(id_) for id_ in texts]
    for job in found:
        verify_job(ledger, job, texts[job.id], lost=job.id == lost.job_id)
        if job.result["by"] == lost.worker and job.id == lost.job_id:
            raise DemoError(f"job {job.id} has the result of the killed worker")
    life = ledger.events(lost.job_id)
    stalled = next(n for n, event in enumerate(life) if event.type is EventType.STALLED)
    seen = life[stalled - 1].received_at
    [claimed] = [event.received_at for event in life[stalled:] if event.type is EventType.CLAIMED]
    silence_s = (life[stalled].received_at - seen).total_seconds()
    _verify_stall_time(life[stalled], silence_s)
    return DemoReport(
        jobs=len(found),
        events=sum(job.rev for job in found),
        recorded_by=dict(sorted(Counter(job.result["by"] for job in found).items())),
        silence_s=silence_s,
        recovery_s=(claimed - seen).total_seconds(),
        recovery_s_max=recovery_s_max,
    )


def verify_job(ledger: Ledger, job: Job, text: str, *, lost: bool) -> None:
    violations = ledger.check(job.id)
    if violations:
        raise DemoError(f"the history of job {job.id} is not in order: {violations[0]}")
    if job.status is not Status.SUCCEEDED or job.result["sha256"] != digest(text):
        raise DemoError(f"job {job.id} is {job.status.value} with the result {job.result}")
    if (job.attempt > 1) != lost:
        raise DemoError(f"job {job.id} took {job.attempt} attempts")
    recorded = actor_name(ledger.events(job.id, types=[EventType.SUCCEEDED])[0])
    if recorded != job.result["by"]:
        raise DemoError(f"job {job.id} was done by {job.result['by']}, the ledger says by {recorded}")


def _verify_stall_time(stalled: Event, silence_s: float) -> None:
    """Nobody is called stalled before the policy says so."""
    allowed_s = stalled.payload["policy"]["stall_after_ms"] / 1_000
    if silence_s < allowed_s:
        raise DemoError(f"a worker was given up after {silence_s:g} s, its policy allows {allowed_s:g} s of silence")


def actor_name(event: Event) -> str:
    """The actor without role and incarnation, which tell nothing here."""
    return event.actor.partition(":")[2].partition("#")[0]
