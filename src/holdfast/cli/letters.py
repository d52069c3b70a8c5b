"""A dead letter, as people and machines are shown one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.page import Page
from holdfast.cli.values import stamp
from holdfast.core.words import error_line, event_words
from holdfast.telemetry.lines import cut

if TYPE_CHECKING:
    from holdfast.ledger import Event, Job

ARGS_CHARACTERS_MAX = 2_000


def described(job: "Job", replay: "Job | None") -> dict[str, Any]:
    """Which job it is, every dead-letter field, and its newest replay."""
    assert job.dead_letter is not None
    own = {"job_id": job.id, "kind": job.kind, "queue": job.queue, "rev": job.rev, "dead_lettered_at": job.finished_at}
    return {**own, **job.dead_letter, "note": job.note, "replayed_as": None if replay is None else _followed(replay)}


def _followed(replay: "Job") -> dict[str, Any]:
    return {"job_id": replay.id, "status": replay.status}


def in_full(job: "Job", events: "Sequence[Event]", replays: "Sequence[Job]") -> dict[str, Any]:
    history = [
        {"rev": e.rev, "type": e.type, "at": e.received_at, "actor": e.actor, "attempt": e.attempt, "reason": e.reason}
        for e in events
    ]
    newest = replays[-1] if replays else None
    return {**described(job, newest), "args": job.args, "history": history, "replays": [_followed(one) for one in replays]}


def told(error: Any, characters_max: int) -> str:
    """An error in a few words."""
    return "–" if error is None else error_line(error, characters_max)


def show_letter(page: Page, job: "Job", events: "Sequence[Event]", replays: "Sequence[Job]") -> None:
    letter = job.dead_letter or {}
    page.line(f"Dead letter {job.id}: {job.kind} in {job.queue}", bold=True)
    page.fields(
        [
            ("reason", letter["reason_code"].value),
            ("stage", letter["failure_stage"]),
            ("dead-lettered", stamp(job.finished_at)),
            ("attempts", letter["attempts"]),
            ("last owner", letter["last_owner"]),
            ("last lease until", stamp(letter["last_lease_expires_at"])),
            ("correlation", letter["correlation_id"]),
            ("note", job.note),
            ("replays", ", ".join(f"{replay.id} ({replay.status.value})" for replay in replays) or None),
            ("args", cut(msgspec.json.encode(job.args).decode(), ARGS_CHARACTERS_MAX)),
        ]
    )
    _show_error(page, job.last_error)
    page.heading("History, without beats")
    told = [event_words(e.type.value, e.reason, e.payload) for e in events]
    rows = [
        (e.rev, what, e.actor, e.attempt, stamp(e.received_at), why or "–") for e, (what, why) in zip(events, told, strict=True)
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
        page.block(told(error, ARGS_CHARACTERS_MAX))
