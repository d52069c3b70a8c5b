"""Jobs and dead letters as text and as JSON."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.output import Page
from holdfast.cli.values import format_time
from holdfast.core.formatting import RETRIED, describe_event, format_error, is_retry
from holdfast.core.model import NEVER, EventType, StallReason, Status
from holdfast.core.text import format_age, format_elapsed, format_time_of_day, join_some, truncate
from holdfast.core.vocabulary import Dialect

if TYPE_CHECKING:
    from holdfast.ledger import Event, Job, Ledger


ARGS_CHARACTERS_MAX = 2_000


def error_text(error: Any, characters_max: int) -> str:
    """Return the error in at most `characters_max` characters, or a dash if there is none."""
    return "–" if error is None else format_error(error, characters_max)


def show_dead_letter(page: Page, job: "Job", events: "Sequence[Event]", replays: "Sequence[Job]") -> None:
    letter = job.dead_letter or {}
    page.line(f"Dead letter {job.id}: {job.kind} in {job.queue}", bold=True)
    page.fields(
        [
            ("reason", letter["reason_code"].value),
            ("stage", letter["failure_stage"]),
            ("dead-lettered", format_time(job.finished_at)),
            ("attempts", letter["attempts"]),
            ("last owner", letter["last_owner"]),
            ("last lease until", format_time(letter["last_lease_expires_at"])),
            ("correlation", letter["correlation_id"]),
            ("note", job.note),
            ("replays", ", ".join(f"{replay.id} ({replay.status.value})" for replay in replays) or None),
            ("args", truncate(msgspec.json.encode(job.args).decode(), ARGS_CHARACTERS_MAX)),
        ]
    )
    _show_error(page, job.last_error)
    page.heading("History, without beats")
    texts = [describe_event(e.type.value, e.reason, e.payload) for e in events]
    rows = [
        (e.rev, what, e.actor, e.attempt, format_time(e.received_at), why or "–")
        for e, (what, why) in zip(events, texts, strict=True)
    ]
    page.table(("rev", "event", "by", "attempt", "when", "reason"), rows)


def _show_error(page: Page, error: Any) -> None:
    if error is None:
        return
    page.heading("Last error")
    trace = error.get("traceback") if isinstance(error, dict) else None
    if isinstance(trace, str):
        page.block(trace)
    else:
        page.block(error_text(error, ARGS_CHARACTERS_MAX))


def job_row(job: "Job", now: datetime) -> tuple[object, ...]:
    """Return a job as a row of a table with the heads JOB_HEADS."""
    status = job.status.value + (
        f", waits for {join_some(job.waits_for)}" if job.waits_for else _available_later(job, now) + _error_suffix(job)
    )
    return (
        job.id,
        job.kind,
        job.queue,
        status,
        job.attempt,
        job.owner or "–",
        progress_text(job),
        format_age(now - job.created_at),
    )


ERROR_CHARACTERS_MAX = 60


def is_scheduled(job: "Job", now: datetime) -> bool:
    """Return whether the job is queued and waits only until it becomes available."""
    return job.status is Status.QUEUED and not job.waits_for and job.available_at > now


def _available_later(job: "Job", now: datetime) -> str:
    return f", from {format_time_of_day(job.available_at, now)}" if is_scheduled(job, now) else ""


def _error_suffix(job: "Job") -> str:
    """Return why a job failed or why a queued job is retried, if its last attempt failed with an error."""
    record = job.record
    if record.last_error is None:
        return ""
    if job.status in (Status.FAILED, Status.DEAD_LETTERED):
        return f": {error_text(job.last_error, ERROR_CHARACTERS_MAX)}"
    if job.status is Status.QUEUED and is_retry(EventType.STALLED, record.stall_reason):
        return f", {RETRIED}: {error_text(job.last_error, ERROR_CHARACTERS_MAX)}"
    return ""


JOB_HEADS = ("job", "kind", "queue", "status", "attempt", "owner", "stage", "age")


def progress_text(job: "Job") -> str:
    """Return the stage and progress of the last heartbeat."""
    parts = [job.stage, None if job.progress is None else str(job.progress)]
    return " ".join(part for part in parts if part) or "–"


def show_job(page: Page, job: "Job", ended: "Mapping[int, Status] | None" = None) -> None:
    """Print a job. `ended` are the dependencies that ended without success."""
    page.line(f"Job {job.id}: {job.kind} in {job.queue}, {job.status.value}", bold=True)
    always: list[tuple[str, object]] = [
        ("attempt", job.attempt if job.attempts_max is None else f"{job.attempt} of {job.attempts_max}"),
        ("rev", job.rev),
        ("priority", job.priority),
        ("created", format_time(job.created_at)),
        ("available", _available_text(job)),
    ]
    some: list[tuple[str, object]] = [
        ("owner", job.owner),
        ("lease ends", job.claim_expires_at and format_time(job.claim_expires_at)),
        ("last beat", job.last_heartbeat_at and format_time(job.last_heartbeat_at)),
        ("phase", job.phase and job.phase.value),
        ("stage", job.stage),
        ("progress", job.progress),
        ("started", job.started_at and format_time(job.started_at)),
        ("finished", job.finished_at and format_time(job.finished_at)),
        *_finished_fields(job),
        ("stalled", None if is_retry(EventType.STALLED, job.stall_reason) else job.stall_reason and job.stall_reason.value),
        ("cancel", job.cancel_reason),
        ("reason", job.reason_code and job.reason_code.value),
        ("failed in", job.failure_stage and job.failure_stage.value),
        ("replay of", job.replay_of),
        ("waits for", join_some(job.waits_for, IDS_MAX) or None),
        ("blocked by", _failed_dependencies(ended or {})),
        ("group", job.group),
        ("limits", ", ".join(f"{name}={units}" for name, units in job.limits.items()) or None),
        ("partition", job.partition),
        ("requires", ", ".join(job.requires) or None),
        ("for worker", job.for_worker),
        ("dedupe key", job.dedupe_key),
        ("key until", job.dedupe_until and format_time(job.dedupe_until)),
        ("note", job.note),
        ("correlation", job.correlation_id),
        ("args", _short_json(job.args)),
        ("checkpoint", _short_json(job.checkpoint) if job.has_checkpoint else None),
        ("result", None if job.result is None else _short_json(job.result)),
        ("last error", None if job.last_error is None else error_text(job.last_error, ARGS_CHARACTERS_MAX)),
    ]
    page.fields([*always, *((name, value) for name, value in some if value is not None)])


def _finished_fields(job: "Job") -> list[tuple[str, object]]:
    """Return the last owner of a finished job and, if it succeeded or failed, how long the last attempt took from its start."""
    if job.finished_at is None:
        return []
    done = job.status in (Status.SUCCEEDED, Status.FAILED)
    took = None if job.started_at is None or not done else format_elapsed(job.finished_at - job.started_at)
    return [("done by" if done else "last owner", job.last_owner), ("took", took)]


IDS_MAX = 100


def _failed_dependencies(ended: "Mapping[int, Status]") -> str | None:
    """Return which dependencies will not succeed, and what to do."""
    if not ended:
        return None
    named = join_some([f"{id_} ({status.value})" for id_, status in ended.items()])
    return f"{named} will not succeed: replay {'it' if len(ended) == 1 else 'them'}, or cancel this job"


def _available_text(job: "Job") -> str:
    """Return when the job is available. The time is unknown while it waits for other jobs."""
    if not job.waits_for:
        return "never: it ended while it waited for others" if job.record.available_at == NEVER else format_time(job.available_at)
    return f"once {join_some(job.waits_for)} {'has' if len(job.waits_for) == 1 else 'have'} succeeded"


EVENT_HEADS = ("position", "rev", "event", "by", "attempt", "when", "reason", "signed by")


def event_rows(ledger: "Ledger", events: "Sequence[Event]", dialect: str = Dialect.HOLDFAST) -> list[tuple[object, ...]]:
    """Return events as rows of a table with the heads EVENT_HEADS, with the names of the dialect."""
    keys = ledger.keys() if any(event.key_id for event in events) else []
    names = {key.key_id: key.name for key in keys}
    translated = zip(events, ledger.in_dialect(events, dialect), strict=True)
    texts = [event_text(event, words, dialect) for event, words in translated]
    return [
        (
            event.pos,
            event.rev,
            what,
            event.actor,
            event.attempt,
            format_time(event.received_at),
            why or "–",
            "" if event.key_id is None else f"{names.get(event.key_id, '?')} {event.key_id}",
        )
        for event, (what, why) in zip(events, texts, strict=True)
    ]


def event_text(event: "Event", words: Mapping[str, Any], dialect: str) -> tuple[str, str]:
    """Return the event's name and reason as text, with the names of the dialect."""
    if dialect == Dialect.HOLDFAST:
        return describe_event(event.type.value, event.reason, event.payload)
    return words["type"], words["reason"] or ""


ATTEMPT_END_TYPES = (EventType.STALLED, EventType.FAILED, EventType.DEAD_LETTERED, EventType.CANCELLED)
"""Events that end an attempt without success."""


def show_attempts(page: Page, events: "Sequence[Event]") -> None:
    """Print how each unsuccessful attempt ended. `events` are the job's events of the types in ATTEMPT_END_TYPES."""
    ends = [
        e for e in events if e.attempt and e.reason != StallReason.RELEASED and (e.type is not EventType.CANCELLED or e.payload)
    ]
    if ends:
        page.heading("Attempts without success")
        texts = [": ".join(filter(None, describe_event(e.type.value, e.reason, e.payload))) for e in ends]
        rows = [(e.attempt, format_time(e.received_at), what) for e, what in zip(ends, texts, strict=True)]
        page.table(("attempt", "when", "what"), rows)


def _short_json(value: Any) -> str:
    return truncate(msgspec.json.encode(value).decode(), ARGS_CHARACTERS_MAX)
