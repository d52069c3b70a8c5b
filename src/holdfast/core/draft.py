"""The draft of a decision, and the steps that the verbs share: stall, requeue, exhaust, fail, cancel, dead-letter."""

from typing import Literal, NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.deadlines import attempts_exhausted, lease_expired, silence_reason
from holdfast.core.evolve import evolve
from holdfast.core.model import (
    HELD,
    SYSTEM,
    TERMINAL,
    UNDO_KIND,
    Actor,
    EventRecord,
    EventType,
    FailureStage,
    JobRecord,
    Micros,
    Policy,
    ReasonCode,
    Role,
    StallReason,
    Status,
)
from holdfast.core.policy import backoff_us, must_be_signed
from holdfast.core.table import source_statuses
from holdfast.errors import Forbidden, InvalidTransition, SignatureInvalid


class Decision(msgspec.Struct, frozen=True):
    """The new events and the job after them. There are no events if the command had nothing to do."""

    job: JobRecord
    events: tuple[EventRecord, ...]


class Draft:
    """The state of one decision: the job after the events that were emitted so far, and those events."""

    def __init__(self, job: JobRecord, now: Micros, command: c.JobCommand) -> None:
        self.job = job
        self.now = now
        self.at = max(now, job.updated_at)
        """The time of the new events. It is never before the job's last event, even if the clock steps back."""
        self.command = command
        self.signed: c.SignedStatement | None = getattr(command, "signed", None)
        self.events: list[EventRecord] = []

    def emit(
        self,
        event_type: EventType,
        to_status: Status | None = None,
        *,
        actor: Actor | None = None,
        reason: str | None = None,
        payload: bytes | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Append an event and apply it to the job. Without `to_status` the status stays; without `actor` it is the command's."""
        event = EventRecord(
            job_id=self.job.id,
            rev=self.job.rev + 1,
            type=event_type,
            received_at=self.at,
            actor=actor or self.command.actor,
            attempt=self.job.attempt + (event_type is EventType.CLAIMED),
            from_status=self.job.status,
            to_status=to_status or self.job.status,
            reason=reason,
            request_id=self.command.request_id,
            cause=self.command.cause,
            payload=payload,
            policy=policy,
            correlation_id=self.job.correlation_id,
            trace_id=self.job.trace_id,
        )
        event = self._with_signature(event)
        self.events.append(event)
        self.job = evolve(self.job, event)

    def time_of(self, actor: Actor) -> Micros:
        """Return the `at` of an event by `actor`: the time in its signed statement, or the ledger's time."""
        return self.signed.signed_at if self.signed is not None and self.signed.signer == actor else self.at

    def _with_signature(self, event: EventRecord) -> EventRecord:
        """Attach the holder's signature to its event. The ledger adds the signatures of other actors after the decision."""
        if self.signed is not None and self.signed.covers(event):
            return self.signed.attach(self.job, event)
        if event.actor.role is Role.WORKER and must_be_signed(self.job.policy, event.type):
            raise missing_signature_error(self.job, event.type)
        return event

    def decision(self) -> Decision:
        return Decision(self.job, tuple(self.events))


def missing_signature_error(job: JobRecord, event_type: EventType) -> SignatureInvalid:
    assert job.policy is not None
    return SignatureInvalid(
        f"{event_type.value} of job {job.id} has to be signed by its holder (its policy: signed={job.policy.signed})",
        why="missing",
        event=event_type.value,
        **job.held_by,
    )


def check_role(verb: str, actor: Actor, allowed: frozenset[Role]) -> None:
    if actor.role not in allowed:
        raise Forbidden(f"{verb} is not allowed for the role {actor.role.value}", verb=verb, allowed=sorted(allowed))


def require_status(verb: str, job: JobRecord) -> None:
    if job.status not in source_statuses(verb):
        raise invalid_transition(verb, job)


def invalid_transition(verb: str, job: JobRecord) -> InvalidTransition:
    """Return the error for a verb that the job's status does not allow."""
    refused = InvalidTransition(f"{verb}: job {job.id} is {job.status.value}", verb=verb, **job.held_by)
    refused.action = _advice(verb, job)
    return refused


def _advice(verb: str, job: JobRecord) -> str:
    """Return what the caller can do instead, given the job's status."""
    if job.status is Status.SUCCEEDED and verb == "replay":
        return (
            "Replay is for jobs that have failed, were cancelled or were dead-lettered. "
            "To do the work of a succeeded job again, enqueue a new job."
        )
    if job.status is Status.SUCCEEDED:
        return f"The job has ended and cannot be changed. To see its result: holdfast job get {job.id}"
    if job.status in TERMINAL:
        return f"The job has ended and cannot be changed. To start it over as a new job: holdfast job replay {job.id}"
    if verb == "replay":
        return f"Replay is for jobs that have ended, and this one has not. To see what happens next: holdfast explain {job.id}"
    allowed = " or ".join(status.value for status in Status if status in source_statuses(verb))
    return f"A job must be {allowed} for this. To see what happens next: holdfast explain {job.id}"


STALL_REASON_CODES = {
    StallReason.NO_HEARTBEAT: ReasonCode.INFRASTRUCTURE_FAILURE,
    StallReason.LEASE_EXPIRED: ReasonCode.INFRASTRUCTURE_FAILURE,
    StallReason.NO_PROGRESS: ReasonCode.TIMEOUT,
    StallReason.OPERATOR_QUEUE_TIMEOUT: ReasonCode.TIMEOUT,
}
"""The reason code of an attempt that stalled without an error: its worker was lost, or it took too long."""


class AttemptFailure(NamedTuple):
    """The failure of one attempt. `code` is None if the attempt gave no reason."""

    error: bytes | None = None
    stage: FailureStage = FailureStage.EXEC
    code: ReasonCode | None = None


def failure_of(job: JobRecord) -> AttemptFailure:
    """Return the failure that ended the newest attempt. It is empty for an attempt that is held or was released.

    `last_error` may be from an earlier attempt, so it is not enough to look at it. The stage is from the newest stall.
    """
    is_released = job.status is Status.QUEUED and job.stall_reason == StallReason.RELEASED
    if job.status in HELD or job.stall_reason is None or is_released:
        return AttemptFailure()
    reason = StallReason(job.stall_reason)
    if job.failure_stage is not None:
        code = None if job.reason_code is None else ReasonCode(job.reason_code)
        return AttemptFailure(job.last_error, FailureStage(job.failure_stage), code)
    return AttemptFailure(msgspec.json.encode({"message": f"stalled: {reason.value}"}), code=STALL_REASON_CODES.get(reason))


def stall(draft: Draft, reason: StallReason, *, actor: Actor | None = None, failure: AttemptFailure | None = None) -> None:
    """Stall the job. `failure` is the error that the holder reports."""
    job = draft.job
    assert job.owner is not None and job.incarnation is not None
    assert job.last_beat_at is not None and job.lease_expires_at is not None
    body = payloads.StalledPayload(
        holder=job.owner,
        incarnation=job.incarnation,
        last_beat_at=job.last_beat_at,
        lease_expires_at=job.lease_expires_at,
        detected_at=draft.time_of(actor or draft.command.actor),
        error=payloads.to_optional_json(failure and failure.error),
        failure_stage=failure and failure.stage.value,
        reason_code=failure and failure.code,
    )
    draft.emit(EventType.STALLED, Status.STALLED, actor=actor, reason=reason.value, payload=body.encode(), policy=job.policy)


def requeue(draft: Draft, delay_us: int, reason: str | None = None, *, released: bool = False) -> None:
    body = payloads.RequeuedPayload(available_at=draft.at + delay_us, released=released)
    draft.emit(EventType.REQUEUED, Status.QUEUED, reason=reason, payload=body.encode())


def backoff_delay_us(draft: Draft, jitter: float) -> int:
    assert draft.job.policy is not None
    return backoff_us(draft.job.policy, draft.job.attempt, jitter)


def requeue_or_exhaust(draft: Draft, jitter: float, reason: str | None = None) -> None:
    if attempts_exhausted(draft.job):
        exhaust(draft, failure_of(draft.job))
    else:
        requeue(draft, backoff_delay_us(draft, jitter), reason)


def exhaust(draft: Draft, failure: AttemptFailure) -> None:
    """End a job that has no attempts left. `failure` is that of the last attempt, and its reason code is used if it has one."""
    policy, job = draft.job.policy, draft.job
    assert policy is not None
    code = failure.code or ReasonCode.EXHAUSTED_RETRIES
    if job.kind == UNDO_KIND:
        dead_letter(draft, failure, ReasonCode.COMPENSATION_FAILED)
    elif policy.on_exhausted == "fail":
        fail(draft, failure._replace(code=code), "exhausted")
    else:
        dead_letter(draft, failure, code)


def dead_letter(draft: Draft, failure: AttemptFailure, code: ReasonCode) -> None:
    job = draft.job
    body = payloads.DeadLetteredPayload(
        reason_code=code.value,
        failure_stage=failure.stage.value,
        last_error=msgspec.Raw(payloads.NULL if failure.error is None else failure.error),
        attempts=job.attempt,
        last_owner=job.owner or job.last_owner,
        last_lease_expires_at=job.lease_expires_at or job.last_lease_expires_at,
        correlation_id=job.correlation_id,
    )
    draft.emit(EventType.DEAD_LETTERED, Status.DEAD_LETTERED, reason=code.value, payload=body.encode())


def fail(draft: Draft, failure: AttemptFailure, failure_type: Literal["permanent", "exhausted"]) -> None:
    """End the job as failed. The event's reason is the reason code of the failure, or else `failure_type`."""
    assert failure.error is not None
    body = payloads.FailedPayload(
        error=msgspec.Raw(failure.error),
        failure=failure_type,
        failure_stage=failure.stage.value,
        reason_code=failure.code,
    )
    draft.emit(EventType.FAILED, Status.FAILED, reason=failure.code or failure_type, payload=body.encode())


def cancel(draft: Draft, reason: str, body: payloads.CancelledPayload | None = None) -> None:
    draft.emit(EventType.CANCELLED, Status.CANCELLED, reason=reason, payload=None if body is None else body.encode())


def cancel_by_holder(draft: Draft, comment: str | None = None, failure: AttemptFailure | None = None) -> None:
    """Cancel an aborting job whose holder has ended its work. The reason is the one given with the cancel."""
    body = None
    if comment is not None or failure is not None:
        body = payloads.CancelledPayload(
            comment=comment,
            error=payloads.to_optional_json(failure and failure.error),
            failure_stage=failure and failure.stage.value,
            reason_code=failure and failure.code,
        )
    cancel(draft, draft.job.cancel_reason or "requested", body)


def record_late_return(draft: Draft, reason: str | None = None) -> None:
    """Record the late return of a holder, as `stalled` and `resumed`, before its own verb.

    A holder that returns after its lease ended loses no work, as long as the job was not queued or claimed again.
    """
    job = draft.job
    if job.status is Status.RUNNING and lease_expired(job, draft.at):
        stall(draft, silence_reason(job), actor=SYSTEM)
    if draft.job.status is Status.STALLED and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING, reason=reason)
