"""What each tool answers: a structure that has a schema, and the same in a few words."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.agent import Brief, InFull, Task
from holdfast.agent.idle import in_words
from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.telemetry.lines import cut

_REF = "#/$defs/{name}"


class OneTask(msgspec.Struct, frozen=True):
    task: Task


class Enqueued(msgspec.Struct, frozen=True):
    task: Task
    is_new: bool
    """False where a dedupe key found a job that was there already."""


class Tasks(msgspec.Struct, frozen=True):
    tasks: list[Task]
    next_after: int | None


class Refused(msgspec.Struct, frozen=True):
    """The structure of an answer that is an error."""

    error: str
    error_code: str
    error_context: dict[str, Any]
    suggested_action: str


def plain(answer: Any) -> Any:
    """As JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(answer, enc_hook=str))


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a structure, with an object at its root, as the protocol wants it."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    whole = parts.pop(kind.__name__) if "$ref" in made else made
    return {**whole, **({"$defs": parts} if parts else {})}


def output_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Of an answer, or of a refusal: some clients hold errors against the schema as well."""
    made, parts = msgspec.json.schema_components([kind, Refused], ref_template=_REF)
    return {"type": "object", "anyOf": list(made), "$defs": parts}


def words(answer: Any) -> str:
    """For whoever reads only the text."""
    match answer:
        case OneTask(task):
            return task_words(task)
        case Enqueued(task, is_new):
            return f"Job {task.id} is {task.status} in {task.queue}." if is_new else f"Job {task.id} was there already."
        case Tasks(tasks, next_after):
            more = f"\nThere may be more: after={next_after}" if next_after is not None else ""
            return ("\n".join(map(_line, tasks)) or "There are no such jobs.") + more
        case InFull():
            history = "\n".join(f"  {e.rev} {e.type} by {e.by} at {_at(e.at)}" for e in answer.history)
            return f"{task_words(answer.task)}\n{_related(answer)}Its history:\n{history}"
        case Brief():
            return _brief(answer)
        case Explanation():
            return answer.text
    return msgspec.json.encode(answer).decode()


def task_words(task: Task) -> str:
    lines = [_line(task)]
    for name in ("args", "checkpoint", "last_error", "result"):
        value = getattr(task, name)
        if value is not msgspec.UNSET:
            lines.append(f"{name}: {cut(msgspec.json.encode(value).decode(), limits.MCP_TEXT_CHARACTERS_MAX)}")
    if not isinstance(task.omitted, msgspec.UnsetType):
        lines += [f"{name}: {size} bytes, in holdfast://jobs/{task.id}" for name, size in task.omitted.items()]
    if task.cancel_requested:
        lines.append("Somebody wants it cancelled: make your safe exit, and release it.")
    return "\n".join(lines)


def _line(task: Task) -> str:
    held = f", {task.claimed_by}'s ({task.session}) until {_at(task.claim_expires_at)}" if task.claimed_by else ""
    return f"Job {task.id}: {task.kind} in {task.queue}, {task.status}, attempt {task.attempt}{held}"


def _brief(brief: Brief) -> str:
    if brief.task is None:
        return in_words(brief.nothing, brief.until)
    left = "".join(
        f"Attempt {one.attempt} left: {cut(msgspec.json.encode(one.checkpoint).decode(), limits.MCP_TEXT_CHARACTERS_MAX)}\n"
        for one in brief.checkpoints
    )
    return f"{task_words(brief.task)}\n{left}{_related(brief)}Chosen as: {brief.why}."


def _related(answer: Brief | InFull) -> str:
    def said(what: str, related: Sequence[Any]) -> str:
        listed = ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related)
        return f"{what} {listed}.\n" if listed else ""

    return said("Waits for", answer.blocked_by) + said("Unlocks", answer.unlocks)


def _at(at: Any) -> str:
    return "–" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
