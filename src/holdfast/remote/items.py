"""Commands as the paths and bodies of requests."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.groups import GroupBody
from holdfast.core.model import Actor, EventType, Fence, Role
from holdfast.core.schedule import ScheduleBody
from holdfast.ledger.public import flow_options, to_datetime
from holdfast.ledger.schedules import job_command

_enqueued = msgspec.json.Decoder(payloads.EnqueuedPayload)
_succeeded = msgspec.json.Decoder(payloads.SucceededPayload)
Body = dict[str, Any]


def path(*parts: str | int) -> str:
    """Return the path of a route. Each part is escaped, so that a name with a slash in it stays one part."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def without_none(**fields: Any) -> Body:
    return {name: value for name, value in fields.items() if value is not None}


def milliseconds(count: int | None) -> str | None:
    """Return a duration as requests have it, None for None. A number of seconds may not be exact."""
    return None if count is None else f"{count}ms"


def microseconds(count: int | None) -> str | None:
    """Return whole milliseconds of a duration as requests have it. None stays None."""
    return None if count is None else milliseconds(count // 1_000)


def policy_fields(settings: Body) -> Body:
    """Return the fields of a policy by the names that callers use. None stays None."""
    return {name.removesuffix("_ms"): milliseconds(value) if name.endswith("_ms") else value for name, value in settings.items()}


def enqueue_items(commands: Sequence[c.Enqueue]) -> list[Body]:
    """Return jobs to create. A job that others of the same call wait for is named by its place in the list."""
    named = {place for command in commands if isinstance(command, c.EnqueueLinked) for place in command.after}
    return [_enqueue_item(command, str(place) if place in named else None) for place, command in enumerate(commands)]


def _enqueue_item(command: c.Enqueue, ref: str | None) -> Body:
    given = _enqueued.decode(command.payload)
    after = [str(place) for place in command.after] if isinstance(command, c.EnqueueLinked) else []
    waits_for = [*given.depends_on, *after]
    return without_none(
        kind=command.kind,
        args=given.args,
        queue=command.queue,
        priority=given.priority or None,
        delay=microseconds(given.delay_us or None),
        available_at=None if given.available_at is None else to_datetime(given.available_at),
        dedupe_key=given.dedupe_key,
        dedupe="forever" if given.dedupe_forever else None,
        dedupe_for=microseconds(given.dedupe_for_us or None),
        on_duplicate=None if given.on_duplicate == "keep" else given.on_duplicate,
        postpone_max=microseconds(given.postpone_max_us or None),
        tier=given.tier,
        policy=None if isinstance(given.policy, msgspec.UnsetType) else policy_fields(msgspec.json.decode(given.policy)),
        correlation_id=command.correlation_id,
        trace_id=command.trace_id,
        group=given.group,
        depends_on=waits_for or None,
        on_dependency_failure=given.on_dependency_failure if waits_for else None,
        ref=ref,
        **flow_options(command.flow),
    )


def schedule_fields(name: str, body: ScheduleBody) -> Body:
    """Return the fields of a schedule by the names that callers use."""
    job = job_command(body, None, "", Actor(Role.CLIENT, name))
    return without_none(
        **_enqueue_item(job, None),
        cron=body.cron,
        every=microseconds(body.every_us),
        tz=body.tz,
        missed=body.missed.value,
        overlap=body.overlap.value,
        jitter=microseconds(body.jitter_us),
        start=None if body.start_at is None else to_datetime(body.start_at),
        end=None if body.end_at is None else to_datetime(body.end_at),
    )


def group_fields(name: str, body: GroupBody) -> Body:
    """Return the follow-up jobs of a group as items."""
    made = {"then": body.then, "on_dead": body.on_dead}
    actor = Actor(Role.CLIENT, name)
    return {
        field: _enqueue_item(job_command(follow_up, None, "", actor), None)
        for field, follow_up in made.items()
        if follow_up is not None
    }


def fence_body(fence: Fence) -> Body:
    """Return a fence as a request has it. Names that the fence lacks are left out."""
    named = without_none(worker=fence.worker or None, incarnation=fence.incarnation or None)
    return {"job_id": fence.job_id, "attempt": fence.attempt, "token": fence.token, **named}


def holder_fields(command: Any) -> Body:
    """Return the fence of a command, and its proof if it is signed. Both are left out without a fence."""
    if command.fence is None:
        return {}
    return without_none(fence=fence_body(command.fence), proof=_proof(command.signed))


def _proof(signed: c.SignedStatement | None) -> Body | None:
    if signed is None:
        return None
    signature = b64encode(signed.signature).decode()
    return {"key_id": signed.key_id, "signature": signature, "statement": signed.statement.decode()}


def beat_body(command: c.Heartbeat) -> Body:
    beat = command.beat
    body = without_none(stage=beat.stage, progress=beat.progress, assist_requested=beat.assist_requested)
    if not isinstance(beat.checkpoint, msgspec.UnsetType):
        body["checkpoint"] = beat.checkpoint
    if not isinstance(beat.undo, msgspec.UnsetType):
        body["undo"] = {"kind": beat.undo.kind, "args": beat.undo.args}
    return holder_fields(command) | body


def completion_body(command: c.Complete) -> Body:
    return holder_fields(command) | {"result": _succeeded.decode(command.payload).result}


def _complete(command: c.Complete) -> Body:
    return {**completion_body(command), "gate": isinstance(command, c.CompleteGated)}


def _fail(command: c.Fail) -> Body:
    return holder_fields(command) | without_none(
        error=msgspec.Raw(command.error),
        retryable=command.retryable,
        reason_code=command.reason_code,
        failure_stage=command.failure_stage,
        retry_after=microseconds(command.retry_after_us),
    )


def _stall(command: c.Stall) -> Body:
    return holder_fields(command) | without_none(
        reason=command.reason,
        error=raw(command.error),
        reason_code=command.reason_code,
        failure_stage=command.failure_stage,
    )


def raw(body: bytes | None) -> msgspec.Raw | None:
    return None if body is None else msgspec.Raw(body)


def _with_fence(command: Any) -> Body:
    return holder_fields(command) | without_none(reason=command.reason)


def _reason(command: Any) -> Body:
    return without_none(reason=command.reason)


def _note(command: c.Annotate) -> tuple[str, Body]:
    if command.note is EventType.DISCARDED:
        return "discard", _reason(command)
    return "compensate", without_none(outcome=command.note.value, reason=command.reason)


Writer = Callable[[Any], tuple[str, Body]]

ON_JOB: dict[type[c.Command], Writer] = {
    c.ClaimJob: lambda x: ("claim", without_none(ttl=milliseconds(x.ttl_ms), labels=x.labels or None)),
    c.Start: lambda x: ("start", holder_fields(x)),
    c.Heartbeat: lambda x: ("heartbeat", beat_body(x)),
    c.Complete: lambda x: ("complete", _complete(x)),
    c.CompleteGated: lambda x: ("complete", _complete(x)),
    c.Fail: lambda x: ("fail", _fail(x)),
    c.Release: lambda x: ("release", _with_fence(x)),
    c.AcknowledgeCancel: lambda x: ("acknowledge-cancel", _with_fence(x)),
    c.Stall: lambda x: ("stall", _stall(x)),
    c.Resume: lambda x: ("resume", _with_fence(x)),
    c.Requeue: lambda x: ("requeue", _reason(x)),
    c.Cancel: lambda x: ("cancel", {"hard": x.hard, "reason": x.reason}),
    c.Assist: lambda x: ("assist" if x.on else "unassist", _reason(x)),
    c.Annotate: _note,
    c.Replay: lambda x: ("replay", _reason(x)),
    c.DeadLetter: lambda x: (
        "dead-letter",
        without_none(reason_code=x.reason_code, failure_stage=x.failure_stage, error=raw(x.error)),
    ),
    c.MoveJob: lambda x: (
        "move",
        without_none(queue=x.queue, reason=x.reason) | ({} if x.for_worker is None else {"for_worker": x.for_worker or None}),
    ),
    c.Reprioritise: lambda x: ("reprioritise", without_none(priority=x.priority, reason=x.reason)),
    c.Reschedule: lambda x: (
        "reschedule",
        without_none(
            available_at=None if x.available_at is None else to_datetime(x.available_at),
            delay=microseconds(x.delay_us or None),
            reason=x.reason,
        ),
    ),
}
"""The last part of the path, and the body, of a command on one job."""
