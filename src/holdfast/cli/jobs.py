"""A job, as people and machines are shown one."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.letters import ARGS_CHARACTERS_MAX, told
from holdfast.cli.page import Page
from holdfast.cli.values import age, clock, lasted, stamp
from holdfast.core.model import NEVER, EventType, FailureStage, Phase, ReasonCode, StallReason, Status
from holdfast.core.words import RETRIED, event_words, is_retry
from holdfast.telemetry.lines import cut

if TYPE_CHECKING:
    from holdfast.ledger import Event, Job


class DeadLetterView(msgspec.Struct, frozen=True):
    """What a dead letter has beyond other jobs."""

    reason_code: ReasonCode
    failure_stage: FailureStage | None
    last_error: Any
    attempts: int
    last_owner: str | None
    last_lease_expires_at: datetime | None
    correlation_id: str


class JobView(msgspec.Struct, frozen=True):
    """Everything that a reader may know about a job. The token of its fence is not among it."""

    id: int
    queue: str
    kind: str
    status: Status
    phase: Phase | None
    priority: int
    rev: int
    attempt: int
    attempts_max: int | None
    """By the newest attempt's policy; null before the first claim."""
    releases: int
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    claim_expires_at: datetime | None
    last_heartbeat_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    owner: str | None
    last_owner: str | None
    stage: str | None
    progress: int | None
    assist_requested: bool
    args: Any
    result: Any
    checkpoint: Any
    error: Any
    """What a failed job failed with."""
    last_error: Any
    failure_stage: FailureStage | None
    """Where the newest attempt broke, if it failed."""
    reason_code: ReasonCode | None
    """Why it failed, where that is known; of a dead letter and of an exhausted job, why it ended."""
    stall_reason: StallReason | None
    cancel_reason: str | None
    cancel_requested_at: datetime | None
    dead_letter: DeadLetterView | None
    correlation_id: str
    trace_id: str | None
    dedupe_key: str | None
    tier: str | None
    replay_of: int | None
    note: str | None
    undo_owed: int
    depends_on: tuple[int, ...]
    waits_for: tuple[int, ...]
    """Those of them that have not succeeded yet."""
    on_dependency_failure: str


_NAMES = tuple(name for name in JobView.__struct_fields__ if name != "dead_letter")


def view(job: "Job") -> JobView:
    letter = job.dead_letter
    plain = {name: getattr(job, name) for name in _NAMES}
    return JobView(**plain, dead_letter=None if letter is None else DeadLetterView(**letter))


def row(job: "Job", now: datetime) -> tuple[object, ...]:
    """A job in one line of a table whose heads are HEADS."""
    status = job.status.value + (f", waits for {shortly(job.waits_for)}" if job.waits_for else _later(job, now) + _error(job))
    return (job.id, job.kind, job.queue, status, job.attempt, job.owner or "–", how_far(job), age(now - job.created_at))


ERROR_CHARACTERS_MAX = 60


def is_scheduled(job: "Job", now: datetime) -> bool:
    """Whether a queued job waits for its time."""
    return job.status is Status.QUEUED and not job.waits_for and job.available_at > now


def _later(job: "Job", now: datetime) -> str:
    return f", from {clock(job.available_at, now)}" if is_scheduled(job, now) else ""


def _error(job: "Job") -> str:
    """Why a job failed, or why a queued job is tried again, where its last attempt failed with an error."""
    record = job.record
    if record.last_error is None:
        return ""
    if job.status in (Status.FAILED, Status.DEAD_LETTERED):
        return f": {told(job.last_error, ERROR_CHARACTERS_MAX)}"
    if job.status is Status.QUEUED and is_retry(EventType.STALLED, record.stall_reason):
        return f", {RETRIED}: {told(job.last_error, ERROR_CHARACTERS_MAX)}"
    return ""


NAMED_MAX = 5


def shortly(ids: "Sequence[int]", most: int = NAMED_MAX) -> str:
    """`1, 2, 3 and 4 more`."""
    more = len(ids) - most
    return ", ".join(map(str, ids[:most])) + (f" and {more:,} more" if more > 0 else "")


HEADS = ("job", "kind", "queue", "status", "attempt", "owner", "stage", "age")


def how_far(job: "Job") -> str:
    """What its holder last said of it."""
    parts = [job.stage, None if job.progress is None else str(job.progress)]
    return " ".join(part for part in parts if part) or "–"


def show_job(page: Page, job: "Job", ended: "Mapping[int, Status] | None" = None) -> None:
    """`ended` are those of the jobs that it waits for which ended without success."""
    page.line(f"Job {job.id}: {job.kind} in {job.queue}, {job.status.value}", bold=True)
    always: list[tuple[str, object]] = [
        ("attempt", job.attempt if job.attempts_max is None else f"{job.attempt} of {job.attempts_max}"),
        ("rev", job.rev),
        ("priority", job.priority),
        ("created", stamp(job.created_at)),
        ("available", _available(job)),
    ]
    some: list[tuple[str, object]] = [
        ("owner", job.owner),
        ("lease ends", job.claim_expires_at and stamp(job.claim_expires_at)),
        ("last beat", job.last_heartbeat_at and stamp(job.last_heartbeat_at)),
        ("phase", job.phase and job.phase.value),
        ("stage", job.stage),
        ("progress", job.progress),
        ("started", job.started_at and stamp(job.started_at)),
        ("finished", job.finished_at and stamp(job.finished_at)),
        *_done(job),
        ("stalled", None if is_retry(EventType.STALLED, job.stall_reason) else job.stall_reason and job.stall_reason.value),
        ("cancel", job.cancel_reason),
        ("reason", job.reason_code and job.reason_code.value),
        ("broke in", job.failure_stage and job.failure_stage.value),
        ("replay of", job.replay_of),
        ("waits for", shortly(job.waits_for, IDS_MAX) or None),
        ("in vain", _in_vain(ended or {})),
        ("dedupe key", job.dedupe_key),
        ("note", job.note),
        ("correlation", job.correlation_id),
        ("args", _json(job.args)),
        ("checkpoint", _json(job.checkpoint) if job.has_checkpoint else None),
        ("result", None if job.result is None else _json(job.result)),
        ("last error", None if job.last_error is None else told(job.last_error, ARGS_CHARACTERS_MAX)),
    ]
    page.fields([*always, *((name, value) for name, value in some if value is not None)])


def _done(job: "Job") -> list[tuple[str, object]]:
    """Who had a finished job last, and how long that attempt took from its start. Nobody works on a job that was called off."""
    if job.finished_at is None:
        return []
    done = job.status in (Status.SUCCEEDED, Status.FAILED)
    took = None if job.started_at is None or not done else lasted(job.finished_at - job.started_at)
    return [("done by" if done else "last owner", job.last_owner), ("took", took)]


IDS_MAX = 100


def _in_vain(ended: "Mapping[int, Status]") -> str | None:
    """Which of the jobs that it waits for will not succeed."""
    if not ended:
        return None
    named = ", ".join(f"{id_} ({status.value})" for id_, status in list(ended.items())[:NAMED_MAX])
    more = f" and {len(ended) - NAMED_MAX:,} more" if len(ended) > NAMED_MAX else ""
    return f"{named}{more} will not succeed: replay {'it' if len(ended) == 1 else 'them'}, or cancel this job"


def _available(job: "Job") -> str:
    """While it waits for others its time is not known."""
    if not job.waits_for:
        return "never: it ended while it waited for others" if job.record.available_at == NEVER else stamp(job.available_at)
    return f"once {shortly(job.waits_for)} {'has' if len(job.waits_for) == 1 else 'have'} succeeded"


def show_events(page: Page, events: "Sequence[Event]") -> None:
    told = [event_words(e.type.value, e.reason, e.payload) for e in events]
    rows = [
        (e.pos, e.rev, what, e.actor, e.attempt, stamp(e.received_at), why or "–")
        for e, (what, why) in zip(events, told, strict=True)
    ]
    page.table(("position", "rev", "event", "by", "attempt", "when", "reason"), rows)


ENDS = (EventType.STALLED, EventType.FAILED, EventType.DEAD_LETTERED, EventType.CANCELLED)
"""Events that end an attempt without success."""


def show_attempts(page: Page, events: "Sequence[Event]") -> None:
    """What each attempt came to that had an error or was given up, from its events of the types in ENDS."""
    came = [
        e for e in events if e.attempt and e.reason != StallReason.RELEASED and (e.type is not EventType.CANCELLED or e.payload)
    ]
    if came:
        page.heading("Attempts without success")
        told = [": ".join(filter(None, event_words(e.type.value, e.reason, e.payload))) for e in came]
        rows = [(e.attempt, stamp(e.received_at), what) for e, what in zip(came, told, strict=True)]
        page.table(("attempt", "when", "what"), rows)


def _json(value: Any) -> str:
    return cut(msgspec.json.encode(value).decode(), ARGS_CHARACTERS_MAX)
