"""The text form of tool results. Values that others have written are quoted as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.agent import Brief, Task, TaskDetails
from holdfast.agent.brief import describe_entry
from holdfast.agent.selection import format_idle
from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.core.model import NEVER
from holdfast.ledger.public import to_datetime
from holdfast.mcp.schemas import AttemptEndResult, ContentsResult, EnqueueResult, TaskListResult, TaskResult
from holdfast.telemetry.formatters import printable

CONTENT_FIELDS = ("args", "checkpoint", "last_error", "result")
_NEVER = to_datetime(NEVER)
_REASONS = {
    "focus": "You were at it.",
    "running": "It was yours, and running.",
    "claimed": "It was yours, and not begun.",
    "last": "You had it last, and it was put back into the queue.",
    "next": "It is the next in order.",
    "expired": "Whoever had it fell silent; you have taken it over.",
}


def format_answer(answer: Any) -> str:
    """Nothing in it can speak to a terminal, or turn writing around."""
    return "\n".join(printable(line) for line in _format(answer).split("\n"))


def _format(answer: Any) -> str:
    match answer:
        case TaskResult(task):
            return format_task(task)
        case AttemptEndResult(task, attempts_left):
            left = "" if attempts_left is msgspec.UNSET else f"\nIt can be tried {attempts_left:,} more times."
            return format_task(task) + left
        case EnqueueResult(task, is_new):
            return f"{_format_line(task)}." if is_new else f"It was there already: {_format_line(task)}."
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
        lines.append("Somebody wants it cancelled: make your safe exit, and release it.")
    if task.replayed is True:
        lines.append(f"This was answered before, and is how it stood then: get_job with id {task.id} tells how it stands now.")
    return "\n".join(lines)


def _format_value(id_: int, part: str, value: Any) -> str:
    text, most = msgspec.json.encode(value).decode(), limits.MCP_TEXT_CHARACTERS_MAX
    return text if len(text) <= most else f"{text[:most]}… (cut: it has {len(text):,} characters, {_how_to_read(id_, part)})"


def _how_to_read(id_: int, part: str) -> str:
    return f"to be had with get_contents, id {id_}, part {part}"


def _format_line(task: Task) -> str:
    counted = f"attempt {task.attempt}"
    held = f", {task.claimed_by}'s ({task.session}) until {_format_time(task.claim_expires_at)}" if task.claimed_by else ""
    return f"Job {task.id}: {task.kind} in {task.queue}, {task.status}{_format_availability(task)}, {counted}{held}"


def _format_availability(task: Task) -> str:
    """When a job that waits may be had."""
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
    left = "".join(
        f"Attempt {one.attempt} left: {_format_value(task.id, 'checkpoint', one.checkpoint)}\n" for one in brief.checkpoints
    )
    return f"{format_task(task)}\n{left}{_format_related(brief)}{_format_history(brief)}\n{_REASONS.get(brief.why, brief.why)}"


def _format_history(answer: Brief | TaskDetails) -> str:
    return "\n".join(["Its history:", *_format_events(answer)])


def _format_events(answer: Brief | TaskDetails) -> Iterator[str]:
    """With a word on what is older, be it that it was told before or that there is too much of it."""
    older = answer.history[0].rev - 1 if answer.history else answer.task.rev if answer.task else 0
    if older:
        yield f"  {older:,} older events: get_job has the newest {limits.BRIEF_EVENTS_MAX}, holdfast://jobs/ID/events all"
    for one in answer.history:
        what, why = describe_entry(one)
        yield f"  {one.rev} {what} by {one.by} at {_format_time(one.at)}" + (f": {why}" if why else "")


def _format_contents(found: ContentsResult) -> str:
    end = found.offset + len(found.text)
    more = "" if found.next_offset is None else f" Go on with offset {found.next_offset}."
    return f"{found.text}\nCharacters {found.offset:,} to {end:,} of {found.characters:,}.{more}"


def _format_related(answer: Brief | TaskDetails) -> str:
    def said(what: str, related: Sequence[Any]) -> str:
        listed = ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related)
        return f"{what} {listed}.\n" if listed else ""

    return said("Waits for", answer.blocked_by) + said("Unlocks", answer.unlocks)


def _format_time(at: Any) -> str:
    return "–" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
