"""Apply an event to its job. Decisions and folds of a history both use `evolve`; no other code changes a job."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core import payloads
from holdfast.core.model import HELD, NEVER, EventRecord, EventType, JobRecord, Phase, Policy, Role, Status
from holdfast.core.payloads import counter_of

_replace = msgspec.structs.replace


def evolve(job: JobRecord | None, event: EventRecord) -> JobRecord:
    """Return the job after `event`. Whether the event is allowed is not checked here: `decide` and `audit` do that."""
    if job is None:
        return _new_job(event)
    changes = _CHANGES[event.type](job, event)
    if event.statement is not None and event.actor.role is Role.WORKER:
        changes["counter"] = counter_of(event.statement)
    return _replace(job, rev=event.rev, status=event.to_status, updated_at=event.received_at, **changes)


def _new_job(event: EventRecord) -> JobRecord:
    body = payloads.decode(payloads.EnqueuedPayload, event.payload)
    at = event.received_at
    return JobRecord(
        id=event.job_id,
        queue=body.queue,
        kind=body.kind,
        status=Status.QUEUED,
        rev=event.rev,
        attempt=0,
        priority=body.priority,
        available_at=NEVER if body.depends_on else body.available_from(at),
        created_at=at,
        updated_at=at,
        args=bytes(body.args),
        correlation_id=event.correlation_id,
        dedupe_key=body.dedupe_key,
        dedupe_forever=body.dedupe_forever,
        tier=body.tier,
        trace_id=event.trace_id,
        replay_of=body.replay_of,
        override=payloads.json_bytes(body.policy),
        depends_on=body.depends_on,
        on_dependency_failure=body.on_dependency_failure,
        wanted_at=body.wanted_at(at),
        dedupe_until=body.dedupe_until(at),
        waits_for=body.depends_on,
        flow=body.flow,
        group=body.group,
    )


def _lease(policy: Policy | None, event: EventRecord) -> dict[str, Any]:
    """Return the fields of a new or renewed lease, which starts at the ledger's time and counts as a heartbeat."""
    assert policy is not None
    return {"lease_expires_at": event.received_at + policy.lease_ttl_ms * 1_000, "last_beat_at": event.received_at}


_NO_FAILURE = {"failure_stage": None, "reason_code": None}
"""The failure fields of an attempt that is held."""


def _claimed(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {
        "attempt": event.attempt,
        "owner": event.actor.name,
        "incarnation": event.actor.incarnation,
        "claimed_at": event.received_at,
        "policy": event.policy,
        "phase": None,
        "started_at": None,
        "stage": None,
        "progress": None,
        "progressed_at": event.received_at,
        "assist_requested": False,
        "counter": None,
        "stall_reason": None,
        "stalled_at": None,
        "revived_at": None,
        **_NO_FAILURE,
        **_lease(event.policy, event),
    }


def _started(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {"phase": Phase.EXECUTING, "started_at": event.received_at, **_lease(job.policy, event)}


def _heartbeat(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    beat = payloads.decode(payloads.BeatPayload, event.payload)
    changes: dict[str, Any] = {
        "stage": job.stage if beat.stage is None else beat.stage,
        "progress": job.progress if beat.progress is None else beat.progress,
        "assist_requested": job.assist_requested if beat.assist_requested is None else beat.assist_requested,
    }
    checkpoint = payloads.json_bytes(beat.checkpoint)
    if checkpoint is not None:
        changes["checkpoint"] = checkpoint
    if checkpoint is not None or (changes["stage"], changes["progress"]) != (job.stage, job.progress):
        changes["progressed_at"] = event.received_at
    if beat.undo is not payloads.UNSET:
        changes["undo_owed"] = job.undo_owed + 1
    if event.to_status is Status.STALLED:
        return changes | {"last_beat_at": event.received_at, "revived_at": event.received_at}
    if event.policy is not None:
        changes["policy"] = event.policy
    return changes | _lease(event.policy or job.policy, event)


def _clear_holder(job: JobRecord) -> dict[str, Any]:
    """Clear owner and lease, and keep them as the last ones. The incarnation stays: it belongs to the attempt."""
    if job.owner is None:
        return {}
    return {
        "owner": None,
        "lease_expires_at": None,
        "last_owner": job.owner,
        "last_lease_expires_at": job.lease_expires_at,
    }


def _stalled(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    body = payloads.decode(payloads.StalledPayload, event.payload)
    changes: dict[str, Any] = {
        "phase": job.phase or Phase.EXECUTING,
        "stall_reason": event.reason,
        "stalled_at": event.received_at,
        "revived_at": None,
        **_clear_holder(job),
    }
    return changes | _failure(body)


def _failure(body: payloads.StalledPayload | payloads.CancelledPayload | payloads.FailedPayload) -> dict[str, Any]:
    """Set stage and reason code to those of this failure. Without an error, `last_error` keeps the earlier one."""
    error = payloads.json_bytes(body.error)
    kept = {} if error is None else {"last_error": error}
    return {"failure_stage": body.failure_stage, "reason_code": body.reason_code, **kept}


def _resumed(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    """Give the job back to its last holder. If the attempt had not started, it starts now."""
    return {
        "phase": Phase.ABORTING if job.phase is Phase.ABORTING else Phase.EXECUTING,
        "owner": job.last_owner,
        "started_at": job.started_at or event.received_at,
        "stall_reason": None,
        "stalled_at": None,
        "revived_at": None,
        **_NO_FAILURE,
        **_lease(job.policy, event),
    }


def _requeued(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    body = payloads.decode(payloads.RequeuedPayload, event.payload)
    return {
        "phase": None,
        "available_at": body.available_at,
        "stalled_at": None,
        "revived_at": None,
        "token": None,
        "releases": job.releases + payloads.is_release(event),
    }


def _unblocked(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {"available_at": payloads.decode(payloads.UnblockedPayload, event.payload).available_at, "waits_for": ()}


def _moved(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    body = payloads.decode(payloads.MovedPayload, event.payload)
    return {"queue": body.queue, "flow": body.moved(job.flow)}


def _reprioritised(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {"priority": payloads.decode(payloads.ReprioritisedPayload, event.payload).priority}


def _rescheduled(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {"available_at": payloads.decode(payloads.RescheduledPayload, event.payload).available_at}


def _replaced(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return _call_fields(payloads.decode(payloads.ReplacedPayload, event.payload))


def _call_fields(body: payloads.ReplacedPayload) -> dict[str, Any]:
    """Return the fields that a later call with the same dedupe key sets."""
    override = payloads.json_bytes(body.policy)
    return {"args": bytes(body.args), "priority": body.priority, "tier": body.tier, "override": override, "flow": body.flow}


def _postponed(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    """Set the new time. While the job waits for others, it is the time from which it may be claimed after them."""
    body = payloads.decode(payloads.PostponedPayload, event.payload)
    changes = _call_fields(body)
    if job.depends_on:
        changes["wanted_at"] = body.available_at
    if not job.is_waiting:
        changes["available_at"] = body.available_at
    return changes


def _finished(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    """Return the fields of every terminal status: no holder, no phase.

    The token stays if the holder itself ended the job, so that a repeated request is recognised. Any other actor's end makes
    the fence invalid.
    """
    return {
        "phase": None,
        "finished_at": event.received_at,
        "token": job.token if event.actor.role is Role.WORKER else None,
        "waits_for": (),
        **_clear_holder(job),
    }


def _succeeded(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    body = payloads.decode(payloads.SucceededPayload, event.payload)
    return {"result": bytes(body.result), "undo_owed": 0, **_finished(job, event)}


def _failed(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return _failure(payloads.decode(payloads.FailedPayload, event.payload)) | _finished(job, event)


def _cancel_requested(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    return {"phase": Phase.ABORTING, "cancel_reason": event.reason, "cancel_requested_at": event.received_at}


def _cancelled(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    """Cancel the job. A job that was not held keeps the failure of its newest attempt."""
    body = payloads.decode(payloads.CancelledPayload, event.payload)
    failure = _failure(body) if job.status in HELD else {}
    return {"cancel_reason": event.reason, **failure, **_finished(job, event)}


def _dead_lettered(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    body = payloads.decode(payloads.DeadLetteredPayload, event.payload)
    return {
        "reason_code": body.reason_code,
        "failure_stage": body.failure_stage,
        "last_error": None if bytes(body.last_error) == payloads.NULL else bytes(body.last_error),
        **_finished(job, event),
    }


def _phase(phase: Phase) -> Callable[[JobRecord, EventRecord], dict[str, Any]]:
    return lambda job, event: {"phase": phase}


def _annotated(job: JobRecord, event: EventRecord) -> dict[str, Any]:
    """Set the note. After `compensated` and `compensation_failed`, no undo steps are left to run."""
    is_undo_over = event.type is not EventType.DISCARDED
    return {"note": event.type.value, "undo_owed": 0 if is_undo_over else job.undo_owed}


_CHANGES: dict[EventType, Callable[[JobRecord, EventRecord], dict[str, Any]]] = {
    EventType.CLAIMED: _claimed,
    EventType.STARTED: _started,
    EventType.HEARTBEAT: _heartbeat,
    EventType.ASSIST_STARTED: _phase(Phase.ASSISTED),
    EventType.ASSIST_ENDED: _phase(Phase.EXECUTING),
    EventType.STALLED: _stalled,
    EventType.RESUMED: _resumed,
    EventType.REQUEUED: _requeued,
    EventType.UNBLOCKED: _unblocked,
    EventType.MOVED: _moved,
    EventType.REPRIORITISED: _reprioritised,
    EventType.RESCHEDULED: _rescheduled,
    EventType.REPLACED: _replaced,
    EventType.POSTPONED: _postponed,
    EventType.SUCCEEDED: _succeeded,
    EventType.FAILED: _failed,
    EventType.CANCEL_REQUESTED: _cancel_requested,
    EventType.CANCELLED: _cancelled,
    EventType.DEAD_LETTERED: _dead_lettered,
    EventType.COMPENSATED: _annotated,
    EventType.COMPENSATION_FAILED: _annotated,
    EventType.DISCARDED: _annotated,
}


_PHASES: dict[EventType, Phase | None] = {
    EventType.CLAIMED: None,
    EventType.STARTED: Phase.EXECUTING,
    EventType.ASSIST_STARTED: Phase.ASSISTED,
    EventType.ASSIST_ENDED: Phase.EXECUTING,
    EventType.CANCEL_REQUESTED: Phase.ABORTING,
    EventType.REQUEUED: None,
    EventType.SUCCEEDED: None,
    EventType.FAILED: None,
    EventType.CANCELLED: None,
    EventType.DEAD_LETTERED: None,
}
PHASE_TYPES = frozenset({*_PHASES, EventType.STALLED, EventType.RESUMED})
"""Types of events that can change a job's phase."""


def phase_after(phase: Phase | None, kind: EventType) -> Phase | None:
    """Return the phase of a job after an event of this type. It agrees with `evolve`, but does not need the whole job."""
    if kind is EventType.STALLED:
        return phase or Phase.EXECUTING
    if kind is EventType.RESUMED:
        return Phase.ABORTING if phase is Phase.ABORTING else Phase.EXECUTING
    return _PHASES.get(kind, phase)
