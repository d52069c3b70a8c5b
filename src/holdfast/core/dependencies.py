"""The commands that the end of one job causes for the jobs that depend on it."""

from typing import NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core.model import SYSTEM, TERMINAL, FailureStage, JobRecord, ReasonCode, Status

ON_FAILURE = ("wait", "cancel", "dead_letter")
"""The possible effects on a waiting job if one of its dependencies ends without success."""


class DependencyState(NamedTuple):
    """The state of a job that others depend on. `replay` is the newest job that repeats it."""

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
    """Return the command for a waiting job whose dependency ended without success, or None if it waits on for a replay."""
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
    """Return the command for a job with no dependencies left. `by` is the last one to succeed, if there was any."""
    return c.Unblock(actor=SYSTEM, request_id=request_id, job_id=job_id, cause=None if by is None else f"{by.id}-{by.rev}")
