"""Compensation: the undo steps of a job that did not succeed run in one undo job, whose end is noted on the first job."""

from collections.abc import Sequence

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.limits import UNDO_STEPS_MAX
from holdfast.core.model import SYSTEM, TERMINAL, UNDO_KIND, EventType, JobRecord, Micros, ReasonCode, Status
from holdfast.errors import LimitExceeded, ValidationError


class UndoArgs(msgspec.Struct, frozen=True):
    """The args of an undo job: the job to undo, and its steps with the newest first."""

    job_id: int
    steps: tuple[payloads.UndoStep, ...]


def check_undo(job: JobRecord, beat: payloads.BeatPayload) -> None:
    """Raise if the job may not have undo steps, or has reached their limit."""
    if beat.undo is payloads.UNSET:
        return
    if job.kind == UNDO_KIND:
        raise ValidationError(f"job {job.id} undoes another job and cannot have undo steps itself", field="undo")
    if job.undo_owed >= UNDO_STEPS_MAX:
        raise LimitExceeded(f"job {job.id} has {job.undo_owed} undo steps", field="undo", limit=UNDO_STEPS_MAX)


def check_reason_code(job: JobRecord, code: ReasonCode | None) -> None:
    """Raise if `code` is compensation_failed and the job is not an undo job."""
    if code is ReasonCode.COMPENSATION_FAILED and job.kind != UNDO_KIND:
        raise ValidationError(f"only a job of kind {UNDO_KIND} ends with {code.value}", field="reason_code")


def has_undo_due(job: JobRecord) -> bool:
    """Return whether the job has ended and its undo steps still have to run, or their end has to be noted."""
    return job.status in TERMINAL and job.undo_owed > 0


def undo_key(job_id: int) -> str:
    """Return the dedupe key of a job's undo job. It is held forever, so that there is never a second one."""
    return f"{UNDO_KIND}/{job_id}"


def undo_command(job: JobRecord, steps: Sequence[payloads.UndoStep], command: c.Compensate, now: Micros) -> c.Enqueue:
    """Return the command that makes the undo job of a finished job. `steps` are in the order of registration.

    A holder that ended the job itself has stopped working on it. If another actor ended the job, the holder may still be
    working, so the undo job waits until the holder's lease is over.
    """
    args = msgspec.json.encode(UndoArgs(job.id, tuple(reversed(steps))))
    lease_over_at = job.last_lease_expires_at or 0
    body = payloads.EnqueuedPayload(
        queue=job.queue,
        kind=UNDO_KIND,
        args=msgspec.Raw(args),
        priority=job.priority,
        available_at=lease_over_at if job.token is None and lease_over_at > now else None,
        dedupe_key=undo_key(job.id),
        dedupe_forever=True,
        tier=job.tier,
    )
    ids = {"correlation_id": job.correlation_id, "trace_id": job.trace_id}
    return c.enqueue_of(body, actor=SYSTEM, request_id=command.request_id, **ids)


def undo_note(undo: JobRecord, command: c.Compensate) -> c.Annotate | None:
    """Return the note for a job whose undo job has ended, or None while the undo job is live."""
    if undo.status not in TERMINAL:
        return None
    done = undo.status is Status.SUCCEEDED
    return c.Annotate(
        actor=SYSTEM,
        request_id=command.request_id,
        job_id=command.job_id,
        note=EventType.COMPENSATED if done else EventType.COMPENSATION_FAILED,
        reason=None if done else undo.status.value,
    )
