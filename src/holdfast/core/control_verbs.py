"""The verbs of the system, operators and clients. A holder can use some of them with its fence."""

from collections.abc import Callable
from typing import Any

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.deadlines import (
    SILENCE_REASONS,
    cancel_grace_over,
    due_stall,
    is_excused,
    lease_expired,
    progress_limit,
    resume_window_ends_at,
    stall_limit,
)
from holdfast.core.draft import (
    AttemptFailure,
    Draft,
    cancel,
    dead_letter,
    failure_of,
    record_late_return,
    requeue_or_exhaust,
    require_status,
    stall,
)
from holdfast.core.model import HELD, UNDO_KIND, EventType, FailureStage, JobRecord, Phase, StallReason, Status
from holdfast.core.undo import check_reason_code
from holdfast.errors import Conflict, InvalidTransition, NotStalledYet, ValidationError


def stall_job(draft: Draft, command: c.Stall) -> None:
    job = draft.job
    require_status("stall", job)
    if command.fence is not None:
        check_reason_code(job, command.reason_code)
        stage = command.failure_stage or FailureStage.EXEC
        failure = None if command.error is None else AttemptFailure(command.error, stage, command.reason_code)
        stall(draft, command.reason or StallReason.WORKER_ERROR, failure=failure)
        return
    if command.signed is not None:
        command.signed.check_server(job, draft.now)
    due = due_stall(job, draft.at, command.reason)
    if due is None or is_excused(job, draft.now, command.fresh_since or 0):
        raise NotStalledYet(
            f"job {job.id} may not be stalled yet",
            limit=stall_limit(job),
            progress_limit=progress_limit(job),
            **job.held_by,
        )
    # The job decides which kind of silence it is, not the caller. The reason in a server's signed statement must be the same.
    stall(draft, due if command.reason is None or command.reason in SILENCE_REASONS else command.reason)


def resume(draft: Draft, command: c.Resume) -> None:
    job = draft.job
    if command.fence is not None and job.status is Status.RUNNING and lease_expired(job, draft.at):
        record_late_return(draft, command.reason)
        return
    require_status("resume", job)
    if command.fence is None and command.signed is not None:
        command.signed.check_server(job, draft.now)
    if command.fence is None and (job.revived_at is None or job.started_at is None):
        raise InvalidTransition(f"job {job.id} has sent no heartbeat since it stalled", verb="resume", **job.held_by)
    draft.emit(EventType.RESUMED, Status.RUNNING, reason=command.reason)


def requeue_job(draft: Draft, command: c.Requeue) -> None:
    job = draft.job
    require_status("requeue", job)
    if command.reason == StallReason.RELEASED:
        raise ValidationError(f"{command.reason} is the reason of a release, not of a requeue", field="reason")
    if job.phase is Phase.ABORTING:
        raise InvalidTransition(f"job {job.id} is being cancelled and will not run again", verb="requeue", **job.held_by)
    requeue_or_exhaust(draft, command.jitter, command.reason)


def unblock(draft: Draft, command: c.Unblock) -> None:
    job = draft.job
    require_status("unblock", job)
    if not job.is_waiting or job.wanted_at is None:
        raise InvalidTransition(f"job {job.id} does not wait for other jobs", verb="unblock", **job.held_by)
    body = payloads.UnblockedPayload(available_at=max(draft.at, job.wanted_at))
    draft.emit(EventType.UNBLOCKED, payload=body.encode())


def move(draft: Draft, command: c.MoveJob) -> None:
    job = draft.job
    require_status("move", job)
    queue = job.queue if command.queue is None else command.queue
    worker = "" if job.flow is None else job.flow.for_worker
    is_reassigned = command.for_worker not in (None, worker)
    if queue != job.queue:
        _check_move(job, queue, command)
    elif not is_reassigned:
        return
    body = payloads.MovedPayload(
        queue=queue,
        from_queue=job.queue,
        for_worker=command.for_worker if is_reassigned else None,
        from_worker=worker if is_reassigned else None,
    )
    draft.emit(EventType.MOVED, reason=command.reason, payload=body.encode())


def _check_move(job: JobRecord, queue: str, command: c.MoveJob) -> None:
    if job.kind == UNDO_KIND:
        raise InvalidTransition(f"job {job.id} undoes another job and stays in its queue", verb="move", **job.held_by)
    if command.key_holder is not None:
        raise Conflict(
            f"the dedupe key {job.dedupe_key!r} is held in {queue} by job {command.key_holder}",
            holder_id=command.key_holder,
            **job.held_by,
        )


def reprioritise(draft: Draft, command: c.Reprioritise) -> None:
    require_status("reprioritise", draft.job)
    if draft.job.priority != command.priority:
        body = payloads.ReprioritisedPayload(priority=command.priority, from_priority=draft.job.priority)
        draft.emit(EventType.REPRIORITISED, reason=command.reason, payload=body.encode())


def reschedule(draft: Draft, command: c.Reschedule) -> None:
    job = draft.job
    require_status("reschedule", job)
    if job.is_waiting:
        raise InvalidTransition(
            f"job {job.id} waits for other jobs, and is available once they have succeeded", verb="reschedule", **job.held_by
        )
    available_at = draft.at + command.delay_us if command.available_at is None else command.available_at
    if available_at != job.available_at:
        body = payloads.RescheduledPayload(available_at=available_at, from_at=job.available_at)
        draft.emit(EventType.RESCHEDULED, reason=command.reason, payload=body.encode())


def sweep(draft: Draft, command: c.Sweep) -> None:
    job = draft.job
    fresh = command.fresh_since or 0
    if cancel_grace_over(job, draft.at, fresh):
        cancel(draft, job.cancel_reason or "requested")
        return
    if job.status in HELD and (reason := due_stall(job, draft.at)) is not None and not is_excused(job, draft.now, fresh):
        stall(draft, reason)
    if draft.job.status is not Status.STALLED:
        return
    if draft.job.revived_at is not None and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING)
    elif draft.at >= resume_window_ends_at(draft.job, fresh):
        if draft.job.phase is Phase.ABORTING:
            cancel(draft, draft.job.cancel_reason or "requested")
        else:
            requeue_or_exhaust(draft, command.jitter)


def cancel_job(draft: Draft, command: c.Cancel) -> None:
    job = draft.job
    if job.status is Status.CANCELLED or (job.phase is Phase.ABORTING and job.status is Status.RUNNING and not command.hard):
        return
    require_status("cancel", job)
    if job.status is Status.RUNNING and not command.hard:
        draft.emit(EventType.CANCEL_REQUESTED, reason=command.reason)
    else:
        cancel(draft, command.reason)


def dead_letter_job(draft: Draft, command: c.DeadLetter) -> None:
    """Dead-letter the job. Failure fields that the command leaves out come from the newest attempt, if that failed."""
    require_status("dead_letter", draft.job)
    check_reason_code(draft.job, command.reason_code)
    failure = failure_of(draft.job) if command.error is None else AttemptFailure(command.error)
    dead_letter(draft, failure._replace(stage=command.failure_stage or failure.stage), command.reason_code)


def assist(draft: Draft, command: c.Assist) -> None:
    verb = "assist" if command.on else "unassist"
    require_status(verb, draft.job)
    if draft.job.phase is not (Phase.EXECUTING if command.on else Phase.ASSISTED):
        raise InvalidTransition(f"{verb}: job {draft.job.id} is {draft.job.phase}", verb=verb, **draft.job.held_by)
    draft.emit(EventType.ASSIST_STARTED if command.on else EventType.ASSIST_ENDED, reason=command.reason)


def annotate(draft: Draft, command: c.Annotate) -> None:
    require_status("annotate", draft.job)
    draft.emit(EventType(command.note), reason=command.reason)


VERBS: dict[type[c.JobCommand], tuple[str, Callable[[Draft, Any], None]]] = {
    c.Stall: ("stall", stall_job),
    c.Resume: ("resume", resume),
    c.Requeue: ("requeue", requeue_job),
    c.Unblock: ("unblock", unblock),
    c.MoveJob: ("move", move),
    c.Reprioritise: ("reprioritise", reprioritise),
    c.Reschedule: ("reschedule", reschedule),
    c.Sweep: ("requeue", sweep),
    c.Cancel: ("cancel", cancel_job),
    c.DeadLetter: ("dead_letter", dead_letter_job),
    c.Assist: ("assist", assist),
    c.Annotate: ("annotate", annotate),
}
"""The function of each command, and the verb whose rows in the table say which roles may use it without a fence."""
