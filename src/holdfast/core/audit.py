"""Audit a history: fold its events into a job, and find every event and row that breaks a rule.

Tests, the simulator and `verify` all use this checker.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from holdfast.core import payloads
from holdfast.core.deadlines import (
    SILENCE_REASONS,
    attempts_exhausted,
    lease_expired,
    progress_limit,
    silence_reason,
    stall_limit,
)
from holdfast.core.evolve import evolve
from holdfast.core.model import (
    ASSIST_REQUESTED,
    HELD,
    TERMINAL,
    UNDO_KIND,
    EventRecord,
    EventType,
    JobRecord,
    Phase,
    ReasonCode,
    Role,
    StallReason,
    Status,
)
from holdfast.core.payloads import counter_of, pruned_sha256
from holdfast.core.policy import is_renewal
from holdfast.core.table import EVENT_ROLES, STEPS


class Violation(NamedTuple):
    """One broken rule. `rev` is the event's, or the row's if the row itself is wrong."""

    job_id: int
    rev: int
    rule: str
    detail: str


def fold(events: Iterable[EventRecord]) -> JobRecord | None:
    """Return the job that results from the events, or None if there are none."""
    job: JobRecord | None = None
    for event in events:
        job = evolve(job, event)
    return job


def check_status(job: JobRecord) -> list[str]:
    """Return the rules about the job's status that its row breaks."""
    held, live = job.status in HELD, job.status not in TERMINAL
    rules = {
        "a held job has an owner and a lease": held == (job.owner is not None and job.lease_expires_at is not None),
        "owner and lease come and go together": (job.owner is None) == (job.lease_expires_at is None),
        "only a succeeded job has a result": (job.result is not None) == (job.status is Status.SUCCEEDED),
        "a running or stalled job has a phase, no other": (job.phase is not None)
        == (job.status in (Status.RUNNING, Status.STALLED)),
        "a stalled job has a reason and a last owner": job.status is not Status.STALLED
        or (job.stall_reason is not None and job.last_owner is not None),
        "a finished job has its time, no other": (job.finished_at is None) == live,
        "a failed job has its error": job.status is not Status.FAILED or job.last_error is not None,
        "a cancelled job has its reason": job.status is not Status.CANCELLED or job.cancel_reason is not None,
        "a dead-lettered job has reason and stage": job.status is not Status.DEAD_LETTERED
        or (job.reason_code is not None and job.failure_stage is not None),
        "a stage is that of an error or of a dead letter": job.failure_stage is None
        or job.last_error is not None
        or job.status is Status.DEAD_LETTERED,
        "a job that is held or has succeeded has no stage": job.failure_stage is None
        or not (held or job.status is Status.SUCCEEDED),
        "a reason has its stage": job.reason_code is None or job.failure_stage is not None,
        "a claimed job was attempted and has its policy": not held or (job.attempt > 0 and job.policy is not None),
        "releases are attempts": 0 <= job.releases <= job.attempt,
        "a job waits for others until it is available, no other does": bool(job.waits_for) == job.is_waiting,
        "a succeeded job has no undo steps left": job.undo_owed == 0 or job.status is not Status.SUCCEEDED,
    }
    return [rule for rule, holds in rules.items() if not holds]


class SignatureRules(Protocol):
    """Checks the signatures of one job's events, in their order. `holdfast.proof.signing.SignatureCheck` is one."""

    def check(self, job: JobRecord | None, event: EventRecord) -> Iterable[tuple[str, str]]:
        """The rules that an event's signature breaks, each with how. `job` is the job before the event."""


def check_history(
    events: Sequence[EventRecord], row: JobRecord | None = None, signatures: SignatureRules | None = None
) -> list[Violation]:
    """Return every rule that one job's events break, and every difference between `row` and their fold.

    The check stops at the first event that cannot be folded. With `signatures`, the signatures of the events are checked too.
    """
    audit = Audit(signatures)
    found: list[Violation] = []
    for event in events:
        found += audit.feed(event)
        if audit.ended:
            return found
    return found if row is None else found + audit.check_row(row)


class Audit:
    """Check one job's history event by event. It keeps only the job that the events fold to, not the events."""

    __slots__ = ("_signatures", "ended", "is_incomplete", "job")

    def __init__(
        self, signatures: SignatureRules | None = None, job: JobRecord | None = None, *, is_incomplete: bool = False
    ) -> None:
        self._signatures = signatures
        self.job = job
        self.is_incomplete = is_incomplete
        """True if retention has deleted the contents of a beat. Some fields of the fold are then not reliable."""
        self.ended = False
        """True if the last event cannot be folded. No further events can be checked."""

    def feed(self, event: EventRecord) -> list[Violation]:
        """Return the rules that the next event breaks."""
        problems = list(_check_event(self.job, event, is_incomplete=self.is_incomplete))
        if self._signatures is not None:
            problems += self._signatures.check(self.job, event)
        found = [Violation(event.job_id, event.rev, rule, detail) for rule, detail in problems]
        if any(rule in _UNFOLDABLE for rule, _ in problems):
            self.ended = True
            return found
        self.job = job = evolve(self.job, event)
        self.is_incomplete = self.is_incomplete or _is_pruned(event)
        found += [Violation(job.id, event.rev, "status fields", broken) for broken in check_status(job)]
        return found

    def check_row(self, row: JobRecord) -> list[Violation]:
        """Return the differences between `row` and the fold of the events."""
        return _check_row(self.job, row, is_incomplete=self.is_incomplete)


_UNFOLDABLE = frozenset({"first event", "one job", "step", "policy", "payload", "illegible"})


def _is_pruned(event: EventRecord) -> bool:
    """Return whether retention deleted the contents of this beat. Stage, progress and `progressed_at` are then unreliable."""
    return event.type is EventType.HEARTBEAT and payloads.decode(payloads.BeatPayload, event.payload).pruned is not None


def _check_event(job: JobRecord | None, event: EventRecord, *, is_incomplete: bool) -> Iterable[tuple[str, str]]:
    """Yield the rules that one event breaks, given the job before it."""
    contents = list(_check_contents(event))
    yield from contents
    is_unreadable = any(rule == "payload" for rule, _ in contents)
    if job is None:
        yield from _check_first(event, is_unreadable=is_unreadable)
        return
    if event.job_id != job.id:
        yield "one job", f"an event of job {event.job_id} in the history of job {job.id}"
    if event.rev != job.rev + 1:
        missing = f": event {job.rev + 1} is missing" if event.rev > job.rev + 1 else ""
        yield "rev", f"event {event.rev} follows event {job.rev}{missing}"
    if event.from_status is not job.status or (event.type, event.from_status, event.to_status) not in STEPS:
        steps = f"it goes from {_status(event.from_status)} to {_status(event.to_status)}"
        yield "step", f"{steps}, but the job was {job.status.value}"
        return
    if event.received_at < job.updated_at:
        yield "time", "an event is older than the one before it"
    if event.attempt != job.attempt + (event.type is EventType.CLAIMED):
        yield "attempt", f"{event.type.value} of attempt {event.attempt}, but the job was at attempt {job.attempt}"
    if event.actor.role not in EVENT_ROLES[event.type]:
        yield "role", f"the role {event.actor.role.value} may not cause {event.type.value}"
    if (event.correlation_id, event.trace_id) != (job.correlation_id, job.trace_id):
        yield "correlation", "the correlation or trace id changed"
    yield from _check_policy(job, event)
    yield from _check_holder(job, event)
    yield from _check_liveness(job, event, is_incomplete=is_incomplete)
    if not is_unreadable:
        yield from _check_record(job, event)
        yield from _check_assist_and_undo(job, event, is_incomplete=is_incomplete)


def _check_first(event: EventRecord, *, is_unreadable: bool) -> Iterable[tuple[str, str]]:
    if event.type is not EventType.ENQUEUED:
        missing = "the job has no first event: " if event.rev != 1 else ""
        yield "first event", f"{missing}a history starts with enqueued, not {event.type.value}"
    elif (event.type, event.from_status, event.to_status) not in STEPS:
        yield "step", f"it goes from {_status(event.from_status)} to {_status(event.to_status)}, but a job begins as queued"
    if event.rev != 1:
        yield "rev", f"the first rev is {event.rev}, not 1"
    if event.type is not EventType.ENQUEUED:
        return
    if event.attempt != 0:
        yield "attempt", f"enqueued at attempt {event.attempt}, not 0"
    if (
        event.reason is not None
        and not is_unreadable
        and payloads.decode(payloads.EnqueuedPayload, event.payload).replay_of is None
    ):
        yield "reason", "enqueued carries a reason, but the job is not a replay"


WITH_POLICY = frozenset({EventType.CLAIMED, EventType.HEARTBEAT, EventType.STALLED})
"""Types of events that carry a snapshot of the lease's policy. A beat has one only if it changes the length of the lease."""
_WITHOUT_REASON = frozenset(
    {
        EventType.UNBLOCKED,
        EventType.REPLACED,
        EventType.POSTPONED,
        EventType.CLAIMED,
        EventType.STARTED,
        EventType.SUCCEEDED,
    }
)
_STALL_REASONS = frozenset(reason.value for reason in StallReason)


def _check_contents(event: EventRecord) -> Iterable[tuple[str, str]]:
    """Check that an event carries only what its type allows."""
    shape = payloads.PAYLOAD_TYPES.get(event.type)
    if shape is None:
        if event.payload is not None:
            yield "payload", f"{event.type.value} carries a payload"
    else:
        try:
            found = payloads.decode(shape, event.payload)
            if (
                isinstance(found, payloads.BeatPayload)
                and found.pruned is not None
                and pruned_sha256(event.payload or b"") is None
            ):
                yield "payload", "a beat whose contents retention deleted has their hash, and nothing else"
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield "payload", f"its payload is not what {event.type.value} carries"
    if event.statement is not None:
        try:
            counter_of(event.statement)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield "illegible", f"the signed statement of {event.type.value} cannot be read"
    if event.policy is not None and event.type not in WITH_POLICY:
        yield "policy snapshot", f"{event.type.value} carries a policy"
    if event.reason is not None and event.type in _WITHOUT_REASON:
        yield "reason", f"{event.type.value} carries a reason"
    if event.type is EventType.STALLED and event.reason not in _STALL_REASONS:
        yield "reason", f"stalled for {event.reason}, which is not a stall reason"


_PHASES = {
    EventType.ASSIST_STARTED: (Phase.EXECUTING,),
    EventType.ASSIST_ENDED: (Phase.ASSISTED,),
    EventType.CANCEL_REQUESTED: (Phase.EXECUTING, Phase.ASSISTED),
}


def _check_record(job: JobRecord, event: EventRecord) -> Iterable[tuple[str, str]]:
    """Check that the values of the job that an event repeats agree with the job."""
    if event.type in _PHASES and job.phase not in _PHASES[event.type]:
        yield "phase", f"{event.type.value} of a job whose phase was {'none' if job.phase is None else job.phase.value}"
    if event.type is EventType.STALLED:
        yield from _check_stall(job, event, payloads.decode(payloads.StalledPayload, event.payload))
    if event.type is EventType.UNBLOCKED:
        available_at = payloads.decode(payloads.UnblockedPayload, event.payload).available_at
        if not job.is_waiting:
            yield "waiting", "unblocked, but it did not wait for other jobs"
        elif available_at != max(event.received_at, job.wanted_at or 0):
            yield "record", f"unblocked, available at {available_at}, but neither the event nor the caller has that time"
    yield from _check_placement(job, event)
    yield from _check_call(job, event)
    if event.type is EventType.REQUEUED and attempts_exhausted(job) and not payloads.is_release(event):
        yield "attempts_max", "requeued with no attempts left"
    if event.type is EventType.FAILED:
        yield from _check_failure(job, event, payloads.decode(payloads.FailedPayload, event.payload))
    if event.type is EventType.DEAD_LETTERED:
        letter = payloads.decode(payloads.DeadLetteredPayload, event.payload)
        recorded = (letter.attempts, letter.last_owner, letter.last_lease_expires_at, letter.correlation_id, letter.reason_code)
        owner, lease = job.owner or job.last_owner, job.lease_expires_at or job.last_lease_expires_at
        if recorded != (job.attempt, owner, lease, job.correlation_id, event.reason):
            yield "record", "the dead letter has another attempt, owner, lease, correlation or reason than the job had"


def _check_placement(job: JobRecord, event: EventRecord) -> Iterable[tuple[str, str]]:
    """Check queue, priority and time changes: the old value is the job's, the new one differs, a waiting job keeps its time."""
    if event.type is EventType.MOVED:
        moved = payloads.decode(payloads.MovedPayload, event.payload)
        worker = "" if job.flow is None else job.flow.for_worker
        if moved.from_queue != job.queue or (moved.queue == job.queue and moved.for_worker is None):
            yield "record", f"moved from {moved.from_queue} to {moved.queue}, but the job was in {job.queue}"
        if moved.for_worker is not None and (moved.from_worker != worker or moved.for_worker == worker):
            yield "record", f"moved from the worker {moved.from_worker!r} to {moved.for_worker!r}, but it was for {worker!r}"
        if moved.for_worker is None and moved.from_worker is not None:
            yield "record", f"moved from the worker {moved.from_worker!r}, but to no other"
    if event.type is EventType.REPRIORITISED:
        given = payloads.decode(payloads.ReprioritisedPayload, event.payload)
        if given.from_priority != job.priority or given.priority == job.priority:
            yield "record", f"reprioritised from {given.from_priority} to {given.priority}, but the job was at {job.priority}"
    if event.type is EventType.RESCHEDULED:
        times = payloads.decode(payloads.RescheduledPayload, event.payload)
        if job.is_waiting:
            yield "waiting", "rescheduled while it waited for others"
        elif times.from_at != job.available_at or times.available_at == job.available_at:
            change = f"rescheduled from {times.from_at} to {times.available_at}"
            yield "record", f"{change}, but the job was available at {job.available_at}"


_BY_CALLS = frozenset({EventType.REPLACED, EventType.POSTPONED})
"""The events that an enqueue with the job's dedupe key makes."""


def _check_call(job: JobRecord, event: EventRecord) -> Iterable[tuple[str, str]]:
    """Check the change by a later call with the same dedupe key: only a job with a key that was never claimed can be changed."""
    if event.type not in _BY_CALLS:
        return
    if job.attempt or job.dedupe_key is None:
        attempts = f"{event.type.value} after {job.attempt} attempts"
        yield "record", f"{attempts}, but only a job with a key that was never claimed can be"
    if event.type is EventType.POSTPONED:
        times = payloads.decode(payloads.PostponedPayload, event.payload)
        before = (job.wanted_at or 0) if job.is_waiting else job.available_at
        if times.from_at != before or times.available_at > times.latest_at:
            change = f"postponed from {times.from_at} to {times.available_at}"
            yield "record", f"{change}, but it was {before}, and {times.latest_at} the latest"


def _check_failure(job: JobRecord, event: EventRecord, body: payloads.FailedPayload) -> Iterable[tuple[str, str]]:
    is_exhausted = body.failure == "exhausted"
    if (is_exhausted and not attempts_exhausted(job)) or (not is_exhausted and event.actor.role is not Role.WORKER):
        yield "record", f"failed as {body.failure}, after {job.attempt} attempts, by {event.actor}"
    if is_exhausted != (body.reason_code is not None) or event.reason != (body.reason_code or body.failure):
        yield "reason", f"failed for {event.reason}, but the payload says {body.failure}, reason code {body.reason_code}"


def _check_stall(job: JobRecord, event: EventRecord, body: payloads.StalledPayload) -> Iterable[tuple[str, str]]:
    if (body.last_beat_at, body.lease_expires_at) != (job.last_beat_at, job.lease_expires_at):
        yield "record", "stalled has another last beat or lease than the job had"
    if (body.holder, body.incarnation) != (job.owner, job.incarnation):
        yield "record", f"stalled names {body.holder} as the holder, but {job.owner} held the attempt"
    if body.detected_at != (event.received_at if event.at is None else event.at):
        yield "record", f"stalled was detected at {body.detected_at}, which is not the time of the event"
    if event.actor.role is Role.SYSTEM and event.reason in SILENCE_REASONS and event.reason != silence_reason(job):
        yield "reason", f"stalled for {event.reason}, but the job's limits say {silence_reason(job).value}"
    if (body.error is payloads.UNSET) != (body.failure_stage is None):
        yield "record", "stalled has an error without its stage, or a stage without its error"


def _check_assist_and_undo(job: JobRecord, event: EventRecord, *, is_incomplete: bool) -> Iterable[tuple[str, str]]:
    """Check that a beat's reason marks a new request for assistance, and that undo steps and failures are on the right jobs."""
    if event.type is EventType.HEARTBEAT:
        beat = payloads.decode(payloads.BeatPayload, event.payload)
        begins = beat.assist_requested is True and not job.assist_requested
        allowed = {ASSIST_REQUESTED if begins else None}
        if event.reason not in (allowed if beat.pruned is None and not is_incomplete else {ASSIST_REQUESTED, None}):
            yield "reason", f"heartbeat carries the reason {event.reason}, but newly requests assistance: {begins}"
        if beat.undo is not payloads.UNSET and job.kind == UNDO_KIND:
            yield "undo", "a job that undoes another job registers an undo step"
    failed = event.type is EventType.DEAD_LETTERED and event.reason == ReasonCode.COMPENSATION_FAILED
    if failed and job.kind != UNDO_KIND:
        yield "undo", "a job that is not an undo job ends with compensation_failed"


def _check_policy(job: JobRecord, event: EventRecord) -> Iterable[tuple[str, str]]:
    if event.type is EventType.CLAIMED and event.policy is None:
        yield "policy", "claimed without a snapshot of its policy"
    if event.type is EventType.STALLED and event.policy != job.policy:
        yield "policy snapshot", "stalled with another policy than it was claimed with"
    if event.type is EventType.HEARTBEAT and event.policy is not None:
        if job.status not in HELD:
            yield "policy snapshot", f"heartbeat of a job that is {job.status.value} renews a lease"
        elif job.policy is None or not is_renewal(job.policy, event.policy):
            yield "policy snapshot", "heartbeat changes more of the policy than the length of the lease, or nothing"
    if event.type is EventType.CLAIMED and attempts_exhausted(job):
        yield "attempts_max", f"claimed again after {job.attempt} attempts, {job.releases} of them released"


def _check_holder(job: JobRecord, event: EventRecord) -> Iterable[tuple[str, str]]:
    """Check that a worker's event comes from the worker that holds the attempt, before its lease ends.

    Every worker may enqueue, and so change a job that was never claimed.
    """
    if event.actor.role is not Role.WORKER or event.type in _BY_CALLS:
        return
    if event.type is EventType.CLAIMED:
        if job.status is Status.QUEUED and event.received_at < job.available_at:
            yield "claimed too early", f"at {_time(event.received_at)}, available from {_time(job.available_at)}"
        return
    if job.status in HELD and event.type is not EventType.STALLED and lease_expired(job, event.received_at):
        ended = f"but the lease ended at {_time(job.lease_expires_at)}"
        yield "late holder", f"{event.type.value} at {_time(event.received_at)}, {ended}"
    holder = (job.owner or job.last_owner, job.incarnation)
    if (event.actor.name, event.actor.incarnation) != holder:
        yield "holder", f"recorded by {event.actor}, but the attempt belongs to {holder[0] or 'another worker'}"


def _check_liveness(job: JobRecord, event: EventRecord, *, is_incomplete: bool) -> Iterable[tuple[str, str]]:
    """Check that the system stalls only past the limit and resumes only after a beat, and that no aborting job is requeued."""
    if event.type is EventType.REQUEUED and job.phase is Phase.ABORTING:
        yield "requeued while aborting", "a job that is being cancelled never runs again"
    if event.actor.role is not Role.SYSTEM:
        return
    if event.type is EventType.STALLED:
        idle = event.reason == StallReason.NO_PROGRESS
        limit = progress_limit(job) if idle else stall_limit(job)
        if not (idle and is_incomplete) and (limit is None or event.received_at <= limit):
            yield "stalled too early", f"at {_time(event.received_at)}, but the limit was {_time(limit)}"
    if event.type is EventType.RESUMED and job.revived_at is None:
        yield "resumed without a beat", f"no beat since the stall at {_time(job.stalled_at)}"


def _status(status: Status | None) -> str:
    return "nothing" if status is None else status.value


def _text(name: str, value: object) -> str:
    """Return a field's value for a message: a time as a date, an enum member as its value."""
    if value is None:
        return "nothing"
    if name.endswith("_at") and isinstance(value, int):
        return _time(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") if value.isascii() else "another content"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value.value if isinstance(value, Enum) else value)


def _time(at: int | None) -> str:
    """Return a time in RFC 3339, or the number itself if it is out of range."""
    try:
        return "never" if at is None else f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at):%Y-%m-%dT%H:%M:%S.%fZ}"
    except OverflowError:
        return str(at)


def _check_row(job: JobRecord | None, row: JobRecord, *, is_incomplete: bool) -> list[Violation]:
    if job is None:
        return [Violation(row.id, row.rev, "fold", "a row without events")]
    ignored = {"token", "waits_for"} | ({"stage", "progress", "progressed_at", "assist_requested"} if is_incomplete else set())
    expected = "waits" if job.is_waiting else "does not wait"
    detail = f"waits_for in its row is {_text('waits_for', row.waits_for)}, its events say that it {expected}"
    waits = [Violation(row.id, row.rev, "fold", detail)]
    return (waits if bool(row.waits_for) != job.is_waiting else []) + [
        Violation(
            row.id,
            row.rev,
            "fold",
            f"{name} in its row is {_text(name, getattr(row, name))}, its events say {_text(name, getattr(job, name))}",
        )
        for name in msgspec.structs.asdict(row)
        if name not in ignored and getattr(row, name) != getattr(job, name)
    ]
