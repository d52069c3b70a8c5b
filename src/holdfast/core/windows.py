"""Dedupe keys: what an enqueue does if another job has its key, and how long a job keeps its key.

A job has its key until its end. With `dedupe_for` it also has it for that time after it was enqueued, and with
`dedupe="forever"` as long as it exists. If another job has the key, `on_duplicate` of the new call decides:

- keep: the job stays as it is.
- replace: the job gets the arguments, the priority, the tier, the policy, and the partition, limits, labels and worker of the new
  call.
- postpone: the same, and the delay of the new call begins now. So the job runs once the calls have ceased for that long, or
  `postpone_max` after it was enqueued.

Only a queued job that was never claimed is changed: an attempt may have had effects with the old arguments. For a job that was
claimed, the new call makes a job of its own, which takes the key. While the key is kept beyond the job's end, there is no such
second job, and the call changes nothing.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.draft import Draft, require_status
from holdfast.core.model import EventRecord, EventType, JobRecord, Micros, Status
from holdfast.errors import Conflict, InvalidTransition

ON_DUPLICATE = ("keep", "replace", "postpone")


class Outcome(Enum):
    """What an enqueue does with the job that has its dedupe key."""

    KEEP = auto()
    """It returns the job as it is."""
    CHANGE = auto()
    """It changes the job."""
    TAKE = auto()
    """It takes the key, and makes a job of its own."""


_CALL_FIELDS = ("args", "priority", "tier", "override", "flow")
"""What a later call changes in a job."""


def length_us(job: JobRecord) -> int:
    """Return for how long from its enqueue the job keeps its key also after its end. 0 if it does not."""
    return 0 if job.dedupe_until is None else job.dedupe_until - job.created_at


def keeps_key(job: JobRecord, now: Micros) -> bool:
    """Return whether the job keeps its key also if it has ended."""
    return job.dedupe_forever or (job.dedupe_until is not None and now < job.dedupe_until)


def outcome_of(job: JobRecord, call: c.Enqueue, now: Micros) -> Outcome:
    """Return what `call` does with `job`, which has its dedupe key. Raise Conflict if they are of different kinds."""
    if call.on_duplicate == "keep":
        return Outcome.KEEP
    if job.kind != call.kind:
        raise Conflict(
            f"the dedupe key {call.dedupe_key!r} is held by job {job.id} of the kind {job.kind}; "
            f"on_duplicate={call.on_duplicate!r} does not change its kind to {call.kind}",
            holder_id=job.id,
            rev=job.rev,
        )
    if job.status is Status.QUEUED and job.attempt == 0:
        return Outcome.CHANGE
    return Outcome.KEEP if keeps_key(job, now) else Outcome.TAKE


def change_command(job_id: int, call: c.Enqueue) -> c.Replace:
    """Return the command by which `call` changes the job that has its dedupe key."""
    fields = {name: getattr(call, name) for name in ("actor", "request_id", *_CALL_FIELDS[1:])}
    fields |= {"job_id": job_id, "args": payloads.args_of(call.payload)}
    if call.on_duplicate == "replace":
        return c.Replace(**fields)
    return c.Postpone(**fields, delay_us=call.delay_us, max_us=call.postpone_max_us)


def replace(draft: Draft, command: c.Replace) -> None:
    _check(draft.job, "replace")
    if _differs(draft.job, command):
        draft.emit(EventType.REPLACED, payload=payloads.ReplacedPayload(**_fields(command)).encode())


def postpone(draft: Draft, command: c.Postpone) -> None:
    job = draft.job
    _check(job, "postpone")
    latest_at = job.created_at + command.max_us
    before = job.wanted_at if job.is_waiting and job.wanted_at is not None else job.available_at
    available_at = min(draft.at + command.delay_us, latest_at)
    if available_at != before or _differs(job, command):
        body = payloads.PostponedPayload(**_fields(command), available_at=available_at, from_at=before, latest_at=latest_at)
        draft.emit(EventType.POSTPONED, payload=body.encode())


def _check(job: JobRecord, verb: str) -> None:
    require_status(verb, job)
    if job.attempt:
        raise InvalidTransition(f"{verb}: job {job.id} was claimed before, and keeps its arguments", verb=verb, **job.held_by)


def _differs(job: JobRecord, command: c.Replace) -> bool:
    return any(getattr(job, name) != getattr(command, name) for name in _CALL_FIELDS)


def _fields(command: c.Replace) -> dict[str, Any]:
    return {
        "args": msgspec.Raw(command.args),
        "priority": command.priority,
        "tier": command.tier,
        "policy": payloads.to_optional_json(command.override),
        "flow": command.flow,
    }


VERBS: dict[type[c.JobCommand], Callable[[Draft, Any], None]] = {c.Replace: replace, c.Postpone: postpone}
"""The function of each command. Every role may enqueue, so every role may give them."""


def changes_payload(event: EventRecord) -> bool:
    """Return whether an event changes what the payload of `enqueued` has: a later call, or a move to another worker."""
    if event.type is EventType.MOVED:
        return payloads.decode(payloads.MovedPayload, event.payload).for_worker is not None
    return event.type in CALL_TYPES


def changed_payload(enqueued: bytes, events: tuple[EventRecord, ...]) -> bytes | None:
    """Return the payload of a job's row after these events, or None if none of them changes it.

    It has the form of the payload of `enqueued`, with the values of the newest call, and the worker to which the job was moved.
    """
    found = [event for event in events if changes_payload(event)]
    if not found:
        return None
    body = payloads.decode(payloads.EnqueuedPayload, enqueued)
    for event in found:
        if event.type is EventType.MOVED:
            moved = payloads.decode(payloads.MovedPayload, event.payload)
            body = msgspec.structs.replace(body, flow=moved.moved(body.flow))
            continue
        change = payloads.decode(CALL_TYPES[event.type], event.payload)
        fields: dict[str, Any] = {name: getattr(change, name) for name in ("args", "priority", "tier", "policy", "flow")}
        if isinstance(change, payloads.PostponedPayload):
            fields |= {"available_at": change.available_at, "delay_us": 0}
        body = msgspec.structs.replace(body, **fields)
    return body.encode()


CALL_TYPES: dict[EventType, type[payloads.ReplacedPayload]] = {
    EventType.REPLACED: payloads.ReplacedPayload,
    EventType.POSTPONED: payloads.PostponedPayload,
}
"""The events of changes by a later call, and their payloads."""
