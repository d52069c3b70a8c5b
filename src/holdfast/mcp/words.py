"""What each tool answers, in a few words, for whoever reads only the text. What others have written is quoted as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.agent import Brief, InFull, Task
from holdfast.agent.brief import entry_words
from holdfast.agent.idle import in_words
from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.core.model import NEVER
from holdfast.ledger.face import to_datetime
from holdfast.mcp.answers import Contents, Ended, Enqueued, OneTask, Tasks
from holdfast.telemetry.lines import visible

CONTENTS = ("args", "checkpoint", "last_error", "result")
_NEVER = to_datetime(NEVER)
_WHY = {
    "focus": "You were at it.",
    "running": "It was yours, and running.",
    "claimed": "It was yours, and not begun.",
    "last": "You had it last, and it was put back into the queue.",
    "next": "It is the next in order.",
    "expired": "Whoever had it fell silent; you have taken it over.",
}


def words(answer: Any) -> str:
    """Nothing in it can speak to a terminal, or turn writing around."""
    return "\n".join(visible(line) for line in _said(answer).split("\n"))


def _said(answer: Any) -> str:
    match answer:
        case OneTask(task):
            return task_words(task)
        case Ended(task, attempts_left):
            left = "" if attempts_left is msgspec.UNSET else f"\nIt can be tried {attempts_left:,} more times."
            return task_words(task) + left
        case Enqueued(task, is_new):
            return f"{_line(task)}." if is_new else f"It was there already: {_line(task)}."
        case Tasks(tasks, next_after):
            more = f"\nThere may be more: after={next_after}" if next_after is not None else ""
            return ("\n".join(map(_row, tasks)) or "There are no such jobs.") + more
        case InFull():
            return f"{task_words(answer.task)}\n{_related(answer)}{_history(answer)}"
        case Brief():
            return _brief(answer)
        case Explanation():
            return answer.text
        case Contents():
            return _contents(answer)
    return msgspec.json.encode(answer).decode()


def task_words(task: Task) -> str:
    lines = [_line(task)]
    for name in CONTENTS:
        value = getattr(task, name)
        if value is not msgspec.UNSET:
            lines.append(f"{name}: {_cut(task.id, name, value)}")
    if not isinstance(task.omitted, msgspec.UnsetType):
        lines += [f"{name}: {size:,} bytes, {_elsewhere(task.id, name)}" for name, size in task.omitted.items()]
    if task.cancel_requested:
        lines.append("Somebody wants it cancelled: make your safe exit, and release it.")
    if task.replayed is True:
        lines.append(f"This was answered before, and is how it stood then: get_job with id {task.id} tells how it stands now.")
    return "\n".join(lines)


def _cut(id_: int, part: str, value: Any) -> str:
    text, most = msgspec.json.encode(value).decode(), limits.MCP_TEXT_CHARACTERS_MAX
    return text if len(text) <= most else f"{text[:most]}… (cut: it has {len(text):,} characters, {_elsewhere(id_, part)})"


def _elsewhere(id_: int, part: str) -> str:
    return f"to be had with get_contents, id {id_}, part {part}"


def _line(task: Task) -> str:
    counted = f"attempt {task.attempt}"
    held = f", {task.claimed_by}'s ({task.session}) until {_at(task.claim_expires_at)}" if task.claimed_by else ""
    return f"Job {task.id}: {task.kind} in {task.queue}, {task.status}{_when(task)}, {counted}{held}"


def _when(task: Task) -> str:
    """When a job that waits may be had."""
    if task.status != "queued":
        return ""
    if task.available_at == _NEVER:
        return ", waiting for other jobs"
    return f"{' again' if task.attempt else ''}, available from {_at(task.available_at)}"


def _row(task: Task) -> str:
    if not isinstance(task.omitted, msgspec.UnsetType):
        return f"{_line(task)}; args: {task.omitted['args']:,} bytes"
    return _line(task) + ("" if task.args is msgspec.UNSET else f"; args: {msgspec.json.encode(task.args).decode()}")


def _brief(brief: Brief) -> str:
    if brief.task is None:
        return in_words(brief.nothing, brief.until)
    task = brief.task if brief.replayed is not True else msgspec.structs.replace(brief.task, replayed=True)
    left = "".join(f"Attempt {one.attempt} left: {_cut(task.id, 'checkpoint', one.checkpoint)}\n" for one in brief.checkpoints)
    return f"{task_words(task)}\n{left}{_related(brief)}{_history(brief)}\n{_WHY.get(brief.why, brief.why)}"


def _history(answer: Brief | InFull) -> str:
    return "\n".join(["Its history:", *_events(answer)])


def _events(answer: Brief | InFull) -> Iterator[str]:
    """With a word on what is older, be it that it was told before or that there is too much of it."""
    older = answer.history[0].rev - 1 if answer.history else answer.task.rev if answer.task else 0
    if older:
        yield f"  {older:,} older events: get_job has the newest {limits.BRIEF_EVENTS_MAX}, holdfast://jobs/ID/events all"
    for one in answer.history:
        what, why = entry_words(one)
        yield f"  {one.rev} {what} by {one.by} at {_at(one.at)}" + (f": {why}" if why else "")


def _contents(found: Contents) -> str:
    end = found.offset + len(found.text)
    more = "" if found.next_offset is None else f" Go on with offset {found.next_offset}."
    return f"{found.text}\nCharacters {found.offset:,} to {end:,} of {found.characters:,}.{more}"


def _related(answer: Brief | InFull) -> str:
    def said(what: str, related: Sequence[Any]) -> str:
        listed = ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related)
        return f"{what} {listed}.\n" if listed else ""

    return said("Waits for", answer.blocked_by) + said("Unlocks", answer.unlocks)


def _at(at: Any) -> str:
    return "–" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
