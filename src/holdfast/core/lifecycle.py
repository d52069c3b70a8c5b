"""decide(job, command, now): what a command does, as events. All rules of the state machine are here and in the table.

A refusal is raised and changes nothing. Rows are never edited: each event is folded in with `evolve`, so what decide
answers and what a reader folds later are the same thing by construction.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.deadlines import MS, exhausted, lease_over, progress_limit, stall_limit, window_over_at
from holdfast.core.evolve import evolve
from holdfast.core.model import (
    ASSIST_REQUESTED,
    HELD,
    SYSTEM,
    TERMINAL,
    UNDO_KIND,
    Actor,
    Event,
    EventType,
    FailureStage,
    Fence,
    Job,
    Micros,
    Phase,
    Policy,
    ReasonCode,
    Role,
    StallReason,
    Status,
)
from holdfast.core.policy import backoff_us, with_ttl
from holdfast.core.proof.signed import Signed
from holdfast.core.receipts import check_gate, receipt_of
from holdfast.core.signing import attach, check_stated, check_verdict, missing, owes, speaks_of
from holdfast.core.table import outsiders, sources
from holdfast.core.undo import check_reason_code, check_undo
from holdfast.errors import (
    Conflict,
    FenceLost,
    Forbidden,
    InvalidTransition,
    LeaseConflictError,
    NotClaimable,
    NotFound,
    NotStalledYet,
)


class Outcome(msgspec.Struct, frozen=True):
    """The job afterwards and the events that led there; no events where there was nothing left to do."""

    job: Job
    events: tuple[Event, ...]


class _Draft:
    """A job on its way through one command."""

    def __init__(self, job: Job, now: Micros, command: c.JobCommand) -> None:
        self.job = job
        self.now = now
        self.at = max(now, job.updated_at)
        """Times of one job never run backwards, whatever the clock does."""
        self.command = command
        self.signed: Signed | None = getattr(command, "signed", None)
        self.events: list[Event] = []

    def emit(
        self,
        kind: EventType,
        to: Status | None = None,
        *,
        actor: Actor | None = None,
        reason: str | None = None,
        payload: bytes | None = None,
        policy: Policy | None = None,
    ) -> None:
        event = Event(
            job_id=self.job.id,
            rev=self.job.rev + 1,
            type=kind,
            received_at=self.at,
            actor=actor or self.command.actor,
            attempt=self.job.attempt + (kind is EventType.CLAIMED),
            from_status=self.job.status,
            to_status=to or self.job.status,
            reason=reason,
            request_id=self.command.request_id,
            cause=self.command.cause,
            payload=payload,
            policy=policy,
            correlation_id=self.job.correlation_id,
            trace_id=self.job.trace_id,
        )
        event = self._vouched(event)
        self.events.append(event)
        self.job = evolve(self.job, event)

    def _vouched(self, event: Event) -> Event:
        """With what its holder signed. What others have to sign is signed by the ledger once it is decided."""
        if self.signed is not None and speaks_of(self.signed, event):
            return attach(self.job, event, self.signed)
        if event.actor.role is Role.WORKER and owes(self.job.policy, event.type):
            raise missing(self.job, event.type)
        return event

    def outcome(self) -> Outcome:
        return Outcome(self.job, tuple(self.events))


def decide(job: Job | None, command: c.JobCommand, now: Micros) -> Outcome:
    """What `command` does to `job` at ledger time `now`, or a refusal."""
    if job is None:
        raise NotFound(f"there is no job {command.job_id}", job_id=command.job_id)
    fence: Fence | None = getattr(command, "fence", None)
    if fence is not None:
        command = _by_holder(job, fence, command, now)
    elif (verb := _OUTSIDE.get(type(command))) is not None:
        _check_role(verb, command.actor, outsiders(verb))
    if command.expected_rev is not None and command.expected_rev != job.rev:
        raise Conflict(
            f"job {job.id} is at rev {job.rev}, not {command.expected_rev}",
            expected_rev=command.expected_rev,
            **job.held_by,
        )
    draft = _Draft(job, now, command)
    _DECISIONS[type(command)](draft, command)
    return draft.outcome()


# Preconditions


def _by_holder(job: Job, fence: Fence, command: Any, now: Micros) -> c.JobCommand:
    """`command` in the name of the holder that its fence, or what it signed, proves it to be."""
    signed: Signed | None = getattr(command, "signed", None)
    holder = holder_of(job, fence, signed)
    if signed is not None:
        check_stated(job, command, holder, now)
    return msgspec.structs.replace(command, actor=holder)  # type: ignore[no-any-return]


def holder_of(job: Job, fence: Fence, signed: Signed | None = None) -> Actor:
    """The holder behind `fence`, or fence_lost. Compared as a whole: an attempt alone proves nothing.

    Without its token, a statement that names this attempt and the worker and incarnation it was given to proves the same: only
    that worker has the key, only that boot of it has the incarnation, and as with the token, whoever was given an earlier
    attempt, or has restarted since, is not the one. It dies with the token, too. What the token does not have, its counter
    gives: nobody who reads a statement on its way can use it again.
    """
    holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
    is_told = fence.token == job.token or (not fence.token and signed is not None and signed.said.actor == holder)
    if job.token is None or fence.attempt != job.attempt or not is_told:
        raise FenceLost(
            f"job {job.id} is no longer yours: attempt {job.attempt} is {job.status.value}"
            + (f", held by {job.owner}" if job.owner else ""),
            **job.held_by,
        )
    return holder


def _check_role(verb: str, actor: Actor, allowed: frozenset[Role]) -> None:
    if actor.role not in allowed:
        raise Forbidden(f"{verb} is not for a {actor.role.value}", verb=verb, allowed=sorted(allowed))


def _require(verb: str, job: Job) -> None:
    if job.status not in sources(verb):
        raise InvalidTransition(f"{verb}: job {job.id} is {job.status.value}", verb=verb, **job.held_by)


# Building blocks


def _stall(draft: _Draft, reason: StallReason, *, actor: Actor | None = None, error: bytes | None = None) -> None:
    job = draft.job
    body = payloads.Stalled(
        last_beat_at=job.last_beat_at,
        lease_expires_at=job.lease_expires_at,
        error=payloads.verbatim(error),
    )
    draft.emit(EventType.STALLED, Status.STALLED, actor=actor, reason=reason.value, payload=body.encode(), policy=job.policy)


def _requeue(draft: _Draft, delay_us: int, reason: StallReason | None = None) -> None:
    body = payloads.Requeued(available_at=draft.at + delay_us)
    draft.emit(EventType.REQUEUED, Status.QUEUED, reason=None if reason is None else reason.value, payload=body.encode())


def _backoff(draft: _Draft, jitter: float) -> int:
    assert draft.job.policy is not None
    return backoff_us(draft.job.policy, draft.job.attempt, jitter)


def _dead_letter(draft: _Draft, code: ReasonCode, stage: FailureStage, error: bytes | None) -> None:
    job = draft.job
    last_error = error if error is not None else job.last_error
    body = payloads.DeadLettered(
        reason_code=code.value,
        failure_stage=stage.value,
        last_error=msgspec.Raw(payloads.NULL if last_error is None else last_error),
        attempts=job.attempt,
        last_owner=job.owner or job.last_owner,
        last_lease_expires_at=job.lease_expires_at or job.last_lease_expires_at,
        correlation_id=job.correlation_id,
    )
    draft.emit(EventType.DEAD_LETTERED, Status.DEAD_LETTERED, reason=code.value, payload=body.encode())


def _exhaust(draft: _Draft, error: bytes | None, stage: FailureStage | None) -> None:
    policy, job = draft.job.policy, draft.job
    assert policy is not None
    if job.kind == UNDO_KIND:
        _dead_letter(draft, ReasonCode.COMPENSATION_FAILED, stage or FailureStage.EXEC, error)
    elif policy.on_exhausted == "fail":
        last = error or job.last_error or msgspec.json.encode({"message": f"stalled: {job.stall_reason}"})
        _fail(draft, last)
    else:
        _dead_letter(draft, ReasonCode.EXHAUSTED_RETRIES, stage or FailureStage.EXEC, error)


def _fail(draft: _Draft, error: bytes) -> None:
    draft.emit(EventType.FAILED, Status.FAILED, payload=payloads.Failed(error=msgspec.Raw(error)).encode())


def _cancel(draft: _Draft, reason: str) -> None:
    draft.emit(EventType.CANCELLED, Status.CANCELLED, reason=reason)


def _return_of_holder(draft: _Draft) -> None:
    """A holder that comes back late, before anybody else has its job, loses no work: what happened is put on record first."""
    job = draft.job
    if job.status is Status.RUNNING and lease_over(job, draft.at):
        _stall(draft, StallReason.LEASE_EXPIRED, actor=SYSTEM)
    if draft.job.status is Status.STALLED and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING)


# The verbs


def _claim_job(draft: _Draft, command: c.ClaimJob) -> None:
    job = draft.job
    if job.status is not Status.QUEUED:
        _require("claim by id", job)
    own = (job.owner, job.incarnation) == (command.actor.name, command.actor.incarnation)
    if job.status in HELD and own and (job.status is Status.RUNNING or not lease_over(job, draft.at)):
        if draft.signed is not None:
            check_stated(job, command, command.actor, draft.now)
        _return_of_holder(draft)
        draft.emit(EventType.HEARTBEAT)
        return
    if job.status in HELD:
        if draft.at <= stall_limit(job) or _excused(job, draft.at, command.fresh_since or 0):
            raise LeaseConflictError(f"job {job.id} is held by {job.owner}", **job.held_by)
        _stall(draft, _silence(job, draft.at), actor=SYSTEM)
    _check_claimable(draft, command)
    assert command.policy is not None
    policy = command.policy if command.ttl_ms is None else with_ttl(command.policy, command.ttl_ms)
    draft.emit(EventType.CLAIMED, Status.CLAIMED, policy=policy)
    draft.job = msgspec.structs.replace(draft.job, token=command.token + policy.token_tail)


def _check_claimable(draft: _Draft, command: c.ClaimJob) -> None:
    """When a job becomes available is a matter of the clock as it is, not of the job's own time."""
    job = draft.job
    why: str | None = None
    until: Micros | None = None
    if job.is_waiting:
        raise NotClaimable(
            f"job {job.id} cannot be claimed: it waits for {len(job.waits_for)} others",
            why="dependency",
            until=None,
            waits_for=list(job.waits_for),
            **job.held_by,
        )
    if command.paused:
        why = "paused"
    elif job.status is Status.QUEUED and job.available_at > draft.now:
        why, until = "backoff" if job.attempt else "scheduled", job.available_at
    elif job.status is Status.STALLED:
        if job.phase is Phase.ABORTING:
            why = "cancelling"
        elif exhausted(job):
            why = "exhausted"
        elif draft.at < window_over_at(job):
            why, until = "resume_window", window_over_at(job)
    if why is not None:
        raise NotClaimable(f"job {job.id} cannot be claimed: {why}", why=why, until=until, **job.held_by)


def _start(draft: _Draft, command: c.Start) -> None:
    job = draft.job
    if job.status is Status.CLAIMED and lease_over(job, draft.at):
        _stall(draft, StallReason.LEASE_EXPIRED, actor=SYSTEM)
    if draft.job.status is Status.STALLED and job.started_at is None:
        draft.emit(EventType.RESUMED, Status.RUNNING)
        return
    _require("start", job)
    draft.emit(EventType.STARTED, Status.RUNNING)


def _heartbeat(draft: _Draft, command: c.Heartbeat) -> None:
    job = draft.job
    _require("heartbeat", job)
    if job.status is Status.RUNNING:
        _return_of_holder(draft)
    elif job.status is Status.CLAIMED and lease_over(job, draft.at):
        _stall(draft, StallReason.LEASE_EXPIRED, actor=SYSTEM)
    check_undo(draft.job, command.beat)
    wishes = bool(command.beat.assist_requested) and not draft.job.assist_requested
    draft.emit(
        EventType.HEARTBEAT,
        reason=ASSIST_REQUESTED if wishes else None,
        payload=payloads.beat_payload(command.beat),
    )


def _complete(draft: _Draft, command: c.Complete) -> None:
    _return_of_holder(draft)
    _require("complete", draft.job)
    draft.emit(EventType.SUCCEEDED, Status.SUCCEEDED, payload=command.payload)


def _complete_gated(draft: _Draft, command: c.CompleteGated) -> None:
    """A holder that comes back late does not pass: there is no return to be put on record first."""
    if draft.job.status not in TERMINAL:
        check_gate(draft.job, receipt_of(draft.job, draft.at), draft.at)
    _require("complete", draft.job)
    draft.emit(EventType.SUCCEEDED, Status.SUCCEEDED, payload=command.payload)


def _fail_job(draft: _Draft, command: c.Fail) -> None:
    _return_of_holder(draft)
    _require("fail", draft.job)
    check_reason_code(draft.job, command.reason_code)
    if not command.retryable:
        if command.reason_code is None:
            _fail(draft, command.error)
        else:
            _dead_letter(draft, command.reason_code, command.failure_stage or FailureStage.EXEC, command.error)
    elif draft.job.phase is Phase.ABORTING:
        _cancel(draft, draft.job.cancel_reason or "requested")
    elif exhausted(draft.job):
        _exhaust(draft, command.error, command.failure_stage)
    else:
        _stall(draft, StallReason.TRANSIENT_ERROR, error=command.error)
        _requeue(draft, _backoff(draft, command.jitter) if command.retry_after_us is None else command.retry_after_us)


def _release(draft: _Draft, command: c.Release) -> None:
    _return_of_holder(draft)
    _require("release", draft.job)
    if draft.job.status is not Status.STALLED:
        _stall(draft, StallReason.RELEASED)
    if draft.job.phase is Phase.ABORTING:
        _cancel(draft, draft.job.cancel_reason or "requested")
    else:
        _requeue(draft, 0, StallReason.RELEASED)


def _acknowledge_cancel(draft: _Draft, command: c.AcknowledgeCancel) -> None:
    _return_of_holder(draft)
    _require("acknowledge_cancel", draft.job)
    if draft.job.phase is not Phase.ABORTING:
        raise InvalidTransition(f"nobody asked to cancel job {draft.job.id}", verb="acknowledge_cancel", **draft.job.held_by)
    _cancel(draft, draft.job.cancel_reason or "requested")


def _silence(job: Job, now: Micros) -> StallReason:
    """Which limit was passed first."""
    if lease_over(job, now) and job.lease_expires_at == stall_limit(job):
        return StallReason.LEASE_EXPIRED
    return StallReason.NO_HEARTBEAT


def _due_stall(job: Job, now: Micros, wanted: StallReason | None = None) -> StallReason | None:
    """Why the system may stall a held job now, for the reason it wants to give if it names one; None while it may not."""
    if wanted is not StallReason.NO_PROGRESS and now > stall_limit(job):
        return _silence(job, now)
    moved_by = progress_limit(job)
    if wanted in (None, StallReason.NO_PROGRESS) and moved_by is not None and now > moved_by:
        return StallReason.NO_PROGRESS
    return None


def _stall_job(draft: _Draft, command: c.Stall) -> None:
    job = draft.job
    _require("stall", job)
    if command.fence is not None:
        _stall(draft, command.reason or StallReason.WORKER_ERROR, error=command.error)
        return
    if command.signed is not None:
        check_verdict(job, command.signed.said, draft.now)
    due = _due_stall(job, draft.at, command.reason)
    if due is None or _excused(job, draft.at, command.fresh_since or 0):
        raise NotStalledYet(
            f"job {job.id} may not be stalled yet",
            limit=stall_limit(job),
            progress_limit=progress_limit(job),
            **job.held_by,
        )
    _stall(draft, command.reason or due)


def _resume(draft: _Draft, command: c.Resume) -> None:
    job = draft.job
    if command.fence is not None and job.status is Status.RUNNING and lease_over(job, draft.at):
        _return_of_holder(draft)
        return
    _require("resume", job)
    if command.fence is None and (job.revived_at is None or job.started_at is None):
        raise InvalidTransition(f"job {job.id} has not beaten since it stalled", verb="resume", **job.held_by)
    draft.emit(EventType.RESUMED, Status.RUNNING)


def _requeue_job(draft: _Draft, command: c.Requeue) -> None:
    job = draft.job
    _require("requeue", job)
    if job.phase is Phase.ABORTING:
        raise InvalidTransition(f"job {job.id} is being cancelled and will not run again", verb="requeue", **job.held_by)
    _requeue_or_exhaust(draft, command.jitter)


def _requeue_or_exhaust(draft: _Draft, jitter: float) -> None:
    if exhausted(draft.job):
        _exhaust(draft, None, None)
    else:
        _requeue(draft, _backoff(draft, jitter))


def _unblock(draft: _Draft, command: c.Unblock) -> None:
    job = draft.job
    _require("unblock", job)
    if not job.is_waiting or job.wanted_at is None:
        raise InvalidTransition(f"job {job.id} waits for nobody", verb="unblock", **job.held_by)
    body = payloads.Unblocked(available_at=max(draft.at, job.wanted_at))
    draft.emit(EventType.UNBLOCKED, payload=body.encode())


def _sweep(draft: _Draft, command: c.Sweep) -> None:
    job = draft.job
    fresh = command.fresh_since or 0
    if _grace_over(job, draft.at, fresh):
        _cancel(draft, job.cancel_reason or "requested")
        return
    if job.status in HELD and (reason := _due_stall(job, draft.at)) is not None and not _excused(job, draft.at, fresh):
        _stall(draft, reason)
    if draft.job.status is not Status.STALLED:
        return
    if draft.job.revived_at is not None and draft.job.started_at is not None:
        draft.emit(EventType.RESUMED, Status.RUNNING)
    elif draft.at >= window_over_at(draft.job, fresh):
        if draft.job.phase is Phase.ABORTING:
            _cancel(draft, draft.job.cancel_reason or "requested")
        else:
            _requeue_or_exhaust(draft, command.jitter)


def _excused(job: Job, now: Micros, fresh: Micros) -> bool:
    """After a step of the clock everyone gets one fresh interval to show a sign of life."""
    assert job.policy is not None
    return now <= fresh + job.policy.stall_after_ms * MS


def _grace_over(job: Job, now: Micros, fresh: Micros) -> bool:
    if job.status not in (Status.RUNNING, Status.STALLED) or job.cancel_requested_at is None or job.policy is None:
        return False
    return job.phase is Phase.ABORTING and now > max(job.cancel_requested_at, fresh) + job.policy.cancel_grace_ms * MS


def _cancel_job(draft: _Draft, command: c.Cancel) -> None:
    job = draft.job
    if job.status is Status.CANCELLED or (job.phase is Phase.ABORTING and job.status is Status.RUNNING and not command.hard):
        return
    _require("cancel", job)
    if job.status is Status.RUNNING and not command.hard:
        draft.emit(EventType.CANCEL_REQUESTED, reason=command.reason)
    else:
        _cancel(draft, command.reason)


def _dead_letter_job(draft: _Draft, command: c.DeadLetter) -> None:
    _require("dead_letter", draft.job)
    check_reason_code(draft.job, command.reason_code)
    _dead_letter(draft, command.reason_code, command.failure_stage, command.error)


def _assist(draft: _Draft, command: c.Assist) -> None:
    verb = "assist" if command.on else "unassist"
    _require(verb, draft.job)
    if draft.job.phase is not (Phase.EXECUTING if command.on else Phase.ASSISTED):
        raise InvalidTransition(f"{verb}: job {draft.job.id} is {draft.job.phase}", verb=verb, **draft.job.held_by)
    draft.emit(EventType.ASSIST_STARTED if command.on else EventType.ASSIST_ENDED)


def _annotate(draft: _Draft, command: c.Annotate) -> None:
    _require("annotate", draft.job)
    draft.emit(EventType(command.note), reason=command.reason)


_DECISIONS: dict[type[c.JobCommand], Callable[[_Draft, Any], None]] = {
    c.ClaimJob: _claim_job,
    c.Start: _start,
    c.Heartbeat: _heartbeat,
    c.Complete: _complete,
    c.Settle: _complete,
    c.CompleteGated: _complete_gated,
    c.Fail: _fail_job,
    c.Release: _release,
    c.AcknowledgeCancel: _acknowledge_cancel,
    c.Stall: _stall_job,
    c.Resume: _resume,
    c.Requeue: _requeue_job,
    c.Unblock: _unblock,
    c.Sweep: _sweep,
    c.Cancel: _cancel_job,
    c.DeadLetter: _dead_letter_job,
    c.Assist: _assist,
    c.Annotate: _annotate,
}


_OUTSIDE: dict[type[c.JobCommand], str] = {
    c.Stall: "stall",
    c.Resume: "resume",
    c.Requeue: "requeue",
    c.Unblock: "unblock",
    c.Sweep: "requeue",
    c.Cancel: "cancel",
    c.DeadLetter: "dead_letter",
    c.Assist: "assist",
    c.Annotate: "annotate",
}
"""The verb whose line of the table says who may ask for a command without a fence."""


def enqueued(job_id: int, command: c.Enqueue, now: Micros, correlation_id: str) -> Event:
    """The first event of a new job."""
    return Event(
        job_id=job_id,
        rev=1,
        type=EventType.ENQUEUED,
        received_at=now,
        actor=command.actor,
        attempt=0,
        from_status=None,
        to_status=Status.QUEUED,
        request_id=command.request_id,
        payload=command.payload,
        correlation_id=correlation_id,
        trace_id=command.trace_id,
    )


def replay_of(job: Job, command: c.Replay) -> c.Enqueue:
    """The new job that repeats a finished one, with everything the first was given. A key held forever stays with the first."""
    _check_role("replay", command.actor, frozenset({Role.OPERATOR}))
    if job.status not in TERMINAL - {Status.SUCCEEDED}:
        raise InvalidTransition(f"replay: job {job.id} is {job.status.value}", verb="replay", **job.held_by)
    key = None if job.dedupe_forever else job.dedupe_key
    body = payloads.Enqueued(
        queue=job.queue,
        kind=job.kind,
        args=msgspec.Raw(job.args),
        priority=job.priority,
        dedupe_key=key,
        tier=job.tier,
        policy=payloads.verbatim(job.override),
        replay_of=job.id,
        depends_on=job.depends_on,
        on_dependency_failure=job.on_dependency_failure,
    )
    linked = partial(c.EnqueueLinked, depends_on=job.depends_on)
    return (linked if job.depends_on else c.Enqueue)(
        actor=command.actor,
        request_id=command.request_id,
        queue=job.queue,
        kind=job.kind,
        payload=body.encode(),
        priority=job.priority,
        dedupe_key=key,
        tier=job.tier,
        override=job.override,
        correlation_id=job.correlation_id,
        trace_id=job.trace_id,
        replay_of=job.id,
    )
