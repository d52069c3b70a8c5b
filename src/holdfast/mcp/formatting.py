"""The text form of tool results. Values from other writers are quoted as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.agent import Brief, Task, TaskDetails
from holdfast.agent.brief import describe_entry
from holdfast.agent.selection import format_idle
from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.core.model import NEVER
from holdfast.core.text import iso_format
from holdfast.ledger.public import to_datetime
from holdfast.mcp.schemas import AttemptEndResult, ContentsResult, EnqueueResult, TaskListResult, TaskResult
from holdfast.telemetry.formatters import printable

CONTENT_FIELDS = ("args", "checkpoint", "last_error", "result")
_NEVER = to_datetime(NEVER)
_REASONS = {
    "focus": "It is the job you were working on.",
    "running": "You hold it, and it was running.",
    "claimed": "You hold it, and it was not started.",
    "last": "You had it last, and it was requeued.",
    "next": "It is the next in order.",
    "expired": "The claim of its last holder expired; you have taken it over.",
}


def format_answer(answer: Any) -> str:
    """Return the answer as text, without terminal escapes and characters that change the direction of writing."""
    return "\n".join(printable(line) for line in _format(answer).split("\n"))


def _format(answer: Any) -> str:
    match answer:
        case TaskResult(task):
            return format_task(task)
        case AttemptEndResult(task, attempts_left):
            tries = "" if attempts_left is msgspec.UNSET else f"\nIt can be tried {attempts_left:,} more times."
            return format_task(task) + tries
        case EnqueueResult(task, is_new):
            return f"{_format_line(task)}." if is_new else f"It exists already: {_format_line(task)}."
        case TaskListResult(tasks, next_after):
            more = f"\nThere may be more: after={next_after}" if next_after is not None else ""
            return ("\n".join(map(_format_row, tasks)) or "There are no such jobs.") + more
        case TaskDetails():
            return f"{format_task(answer.task)}\n{_format_related(answer)}{_format_history(answer)}"
        case Brief():
            return _format_brief(answer)
        case Explanation():
            return answer.text
        case ContentsResult():
            return _format_contents(answer)
    return msgspec.json.encode(answer).decode()


def format_task(task: Task) -> str:
    lines = [_format_line(task)]
    for name in CONTENT_FIELDS:
        value = getattr(task, name)
        if value is not msgspec.UNSET:
            lines.append(f"{name}: {_format_value(task.id, name, value)}")
    if not isinstance(task.omitted, msgspec.UnsetType):
        lines += [f"{name}: {size:,} bytes, {_how_to_read(task.id, name)}" for name, size in task.omitted.items()]
    if task.cancel_requested:
        lines.append("Its cancellation was requested: stop at a safe point and release it.")
    if task.replayed is True:
        lines.append(f"This is the answer to an earlier request. For the current state call get_job with id {task.id}.")
    return "\n".join(lines)


def _format_value(id_: int, part: str, value: Any) -> str:
    text, most = msgspec.json.encode(value).decode(), limits.MCP_TEXT_CHARACTERS_MAX
    return text if len(text) <= most else f"{text[:most]}… (cut: it has {len(text):,} characters, {_how_to_read(id_, part)})"


def _how_to_read(id_: int, part: str) -> str:
    return f"read it with get_contents, id {id_}, part {part}"


def _format_line(task: Task) -> str:
    attempt = f"attempt {task.attempt}"
    holder = f", {task.claimed_by}'s ({task.session}) until {_format_time(task.claim_expires_at)}" if task.claimed_by else ""
    return f"Job {task.id}: {task.kind} in {task.queue}, {task.status}{_format_availability(task)}, {attempt}{holder}"


def _format_availability(task: Task) -> str:
    """Return when a queued job can be claimed, "" for other jobs."""
    if task.status != "queued":
        return ""
    if task.available_at == _NEVER:
        return ", waiting for other jobs"
    return f"{' again' if task.attempt else ''}, available from {_format_time(task.available_at)}"


def _format_row(task: Task) -> str:
    if not isinstance(task.omitted, msgspec.UnsetType):
        return f"{_format_line(task)}; args: {task.omitted['args']:,} bytes"
    return _format_line(task) + ("" if task.args is msgspec.UNSET else f"; args: {msgspec.json.encode(task.args).decode()}")


def _format_brief(brief: Brief) -> str:
    if brief.task is None:
        return format_idle(brief.nothing, brief.until)
    task = brief.task if brief.replayed is not True else msgspec.structs.replace(brief.task, replayed=True)
    checkpoints = "".join(
        f"Checkpoint of attempt {one.attempt}: {_format_value(task.id, 'checkpoint', one.checkpoint)}\n"
        for one in brief.checkpoints
    )
    rest = f"{_format_related(brief)}{_format_history(brief)}\n{_REASONS.get(brief.why, brief.why)}"
    return f"{format_task(task)}\n{checkpoints}{rest}"


def _format_history(answer: Brief | TaskDetails) -> str:
    return "\n".join(["Its history:", *_format_events(answer)])


def _format_events(answer: Brief | TaskDetails) -> Iterator[str]:
    """Yield a line for each event. The first line counts older events, which the agent has seen or which are too many."""
    older = answer.history[0].rev - 1 if answer.history else answer.task.rev if answer.task else 0
    if older:
        yield f"  {older:,} older events: get_job has the newest {limits.BRIEF_EVENTS_MAX}, holdfast://jobs/ID/events has all"
    for one in answer.history:
        what, why = describe_entry(one)
        yield f"  {one.rev} {what} by {one.by} at {_format_time(one.at)}" + (f": {why}" if why else "")


def _format_contents(piece: ContentsResult) -> str:
    end = piece.offset + len(piece.text)
    more = "" if piece.next_offset is None else f" Continue with offset {piece.next_offset}."
    return f"{piece.text}\nCharacters {piece.offset:,} to {end:,} of {piece.characters:,}.{more}"


def _format_related(answer: Brief | TaskDetails) -> str:
    def line(label: str, related: Sequence[Any]) -> str:
        jobs = ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related)
        return f"{label} {jobs}.\n" if jobs else ""

    return line("Waits for", answer.blocked_by) + line("Unlocks", answer.unlocks)


def _format_time(at: Any) -> str:
    return "–" if at is None else iso_format(at, "seconds")
