"""What each tool answers, as a structure that has a schema."""

from typing import Any

import msgspec

from holdfast.agent import Task
from holdfast.core import limits

ACTED_UPON = (
    *("id", "kind", "status", "attempt", "available_at", "claim_expires_at", "cancel_requested"),
    *("args", "checkpoint", "last_error", "result", "omitted", "replayed"),
)
"""The fields of a task that the schemas have. A task in an answer has more."""
LEFT_OPEN = ("policy",)
"""Fields of an answer whose schema does not say what is in them."""
ENUM_MAX = 10
"""An answer's field with more values than this is a plain text in the schema."""


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
    return _schema(kind)


def output_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The names and types of an answer.

    A client sends this schema to its model with each conversation, so it is short: of a task it has only the fields that a
    model acts upon. No field is required, because some clients check refusals against the schema as well.
    """
    bare: dict[str, Any] = _bare(_schema(kind))
    return bare


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Without $ref: not every client resolves it."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    slim: dict[str, Any] = _slim(made, parts)
    slim.pop("description", None)
    return slim


def _slim(schema: Any, parts: dict[str, Any]) -> Any:
    """The same in fewer characters. What may be null says so in its type. Upper bounds that no caller reaches are left out."""
    if isinstance(schema, list):
        return [_slim(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**parts[schema["$ref"]], **{name: part for name, part in schema.items() if name != "$ref"}}
    slim = {name: _slim(part, parts) for name, part in schema.items() if not _is_left_out(name, part)}
    match slim.get("anyOf"):
        case [{"enum": values, **rest}, {"type": "null"}]:
            del slim["anyOf"]
            return {"enum": [*values, None], **rest, **slim}
        case [{"type": str() as kind, **rest}, {"type": "null"}]:
            del slim["anyOf"]
            return {"type": [kind, "null"], **rest, **slim}
    return slim


def _is_left_out(name: str, part: Any) -> bool:
    """Whether a keyword is left out. A property of the same name is not: its part is a schema."""
    match name, part:
        case ("title" | "maxLength" | "maxItems", str() | int()) | ("default", None) | ("required", []):
            return True
        case "maximum", int() as most:
            return most >= limits.REV_MAX
    return False


def _bare(schema: Any) -> Any:
    """Only names and types, and of a task only some."""
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {name: _bare(part) for name, part in schema.items() if name in ("type", "items", "anyOf", "enum")}
    if len(bare.get("enum", ())) > ENUM_MAX:
        bare = {"type": "string"}
    if fields := schema.get("properties", {}):
        kept = ACTED_UPON if "cancel_requested" in fields else fields
        bare["properties"] = {name: {"type": "object"} if name in LEFT_OPEN else _bare(fields[name]) for name in kept}
    return bare
