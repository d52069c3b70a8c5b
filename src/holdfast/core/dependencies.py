"""What the end of one job means for the jobs that depend on it."""

from typing import NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core.model import SYSTEM, TERMINAL, FailureStage, JobRecord, ReasonCode, Status

ON_FAILURE = ("wait", "cancel", "dead_letter")
"""What a job may want done with itself once one that it waits for has come to nothing."""
ON_FAILURE_DEFAULT = "dead_letter"
"""What is done where an enqueue does not say. Events without a choice were written when it was to wait, and still mean that."""


class DependencyState(NamedTuple):
    """Where a job stands that others depend on. `replay` is the newest job that repeats it."""

    id: int
    status: Status
    rev: int
    replay: int | None = None

    @property
    def is_met(self) -> bool:
        return self.status is Status.SUCCEEDED

    @property
    def has_failed(self) -> bool:
        return self.status in TERMINAL and not self.is_met


def failure_command(job: JobRecord, ended: DependencyState, request_id: str | None) -> c.JobCommand | None:
    """What is asked of a waiting job when one it depends on has come to nothing; None where it goes on waiting for a replay."""
    why = f"dependency {ended.id} {ended.status.value}"
    cause = f"{ended.id}-{ended.rev}"
    if job.on_dependency_failure == "cancel":
        return c.Cancel(actor=SYSTEM, request_id=request_id, job_id=job.id, cause=cause, reason=why)
    if job.on_dependency_failure == "dead_letter":
        return c.DeadLetter(
            actor=SYSTEM,
            request_id=request_id,
            job_id=job.id,
            cause=cause,
            reason_code=ReasonCode.DEPENDENCY_UNAVAILABLE,
            failure_stage=FailureStage.FETCH,
            error=msgspec.json.encode({"message": why}),
        )
    return None


def unblock_command(job_id: int, by: DependencyState | None, request_id: str | None) -> c.Unblock:
    """What is asked of a job when nobody is left for it to wait for. `by` is the last one, if there was anybody at all."""
    return c.Unblock(actor=SYSTEM, request_id=request_id, job_id=job_id, cause=None if by is None else f"{by.id}-{by.rev}")
