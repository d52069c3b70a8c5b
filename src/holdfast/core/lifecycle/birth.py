"""The first event of a job, be it new or the repetition of another."""

from functools import partial

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.lifecycle.draft import check_role, not_from
from holdfast.core.model import TERMINAL, Event, EventType, Job, Micros, Role, Status


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
        reason=command.reason,
        request_id=command.request_id,
        payload=command.payload,
        correlation_id=correlation_id,
        trace_id=command.trace_id,
    )


def replay_of(job: Job, command: c.Replay) -> c.Enqueue:
    """The new job that repeats a finished one, with everything the first was given. A key held forever stays with the first."""
    check_role("replay", command.actor, frozenset({Role.OPERATOR}))
    if job.status not in TERMINAL - {Status.SUCCEEDED}:
        raise not_from("replay", job)
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
        reason=command.reason,
    )
