"""What each tool answers, as a structure that has a schema."""

from typing import Any

import msgspec

from holdfast.agent import Task

_REF = "#/$defs/{name}"
_SAID = ("title", "description")
_ACTED_UPON = (
    *("id", "kind", "queue", "status", "attempt", "available_at", "claimed_by", "session", "claim_expires_at"),
    *("progress", "cancel_requested", "args", "omitted", "replayed"),
)


class OneTask(msgspec.Struct, frozen=True):
    task: Task


class Ended(msgspec.Struct, frozen=True):
    """`attempts_left` is there where the job is queued again; an attempt that was handed back does not count."""

    task: Task
    attempts_left: int | msgspec.UnsetType = msgspec.UNSET


class Enqueued(msgspec.Struct, frozen=True):
    task: Task
    is_new: bool
    """False where a dedupe key found a job that was there already."""


class Tasks(msgspec.Struct, frozen=True):
    tasks: list[Task]
    next_after: int | None


class Contents(msgspec.Struct, frozen=True):
    """A piece of what a task is about, as JSON. `characters` is how long the whole is; the next piece is at `next_offset`."""

    id: int
    part: str
    text: str
    offset: int
    characters: int
    next_offset: int | None


class Refused(msgspec.Struct, frozen=True):
    """The structure of an answer that is an error."""

    error: str
    error_code: str
    error_context: dict[str, Any]
    suggested_action: str


def plain(answer: Any) -> Any:
    """As JSON has it. In rows of a list, what is null is left out."""
    found = msgspec.json.decode(msgspec.json.encode(answer, enc_hook=str))
    if isinstance(answer, Tasks):
        found["tasks"] = [{name: value for name, value in row.items() if value is not None} for row in found["tasks"]]
    return found


def input_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, with an object at its root, as the protocol wants it."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    whole = parts.pop(kind.__name__) if "$ref" in made else made
    slim: dict[str, Any] = _slim({**whole, **({"$defs": parts} if parts else {})})
    return slim


def output_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Of an answer, or of a refusal: some clients hold errors against the schema as well.

    Every model pays for it with each conversation. So it has names and types and nothing else, and of a task in a short answer
    what a model acts upon; the schema of a job in full has all of it.
    """
    made, parts = msgspec.json.schema_components([kind, Refused], ref_template=_REF)
    bare = {name: {key: value for key, value in part.items() if key not in _SAID} for name, part in parts.items()}
    slim: dict[str, Any] = _slim({"type": "object", "anyOf": list(made), "$defs": bare})
    for name, part in slim["$defs"].items():
        if name not in (kind.__name__, Refused.__name__):
            part.pop("required", None)
        if name == Task.__name__ and kind in (OneTask, Ended, Enqueued, Tasks):
            part["properties"] = {field: part["properties"][field] for field in _ACTED_UPON}
        for field in part.get("properties", {}).values():
            field.pop("default", None)
    return slim


def _slim(schema: Any) -> Any:
    """The same in fewer characters: what may be null says so in its type."""
    if isinstance(schema, list):
        return [_slim(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    slim = {name: _slim(part) for name, part in schema.items() if not (name == "title" and isinstance(part, str))}
    match slim.get("anyOf"):
        case [{"type": str() as kind, **rest}, {"type": "null"}] if not rest.keys() & {"enum", "$ref"}:
            del slim["anyOf"]
            if slim.get("default", ...) is None:
                del slim["default"]
            return {"type": [kind, "null"], **rest, **slim}
    return slim
