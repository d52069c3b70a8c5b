"""Arguments and results of the tools, and their JSON Schemas."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.agent import Task
from holdfast.core import limits
from holdfast.core.model import FailureStage, Phase, ReasonCode, Status

PAGE_DEFAULT = 20
PIECE_CHARACTERS_DEFAULT = 16_000
REQUEST_ID_MAX = limits.KEY_BYTES_MAX - limits.NAME_BYTES_MAX - len("255::")
"""The ledger is given it behind the session's name: what one client calls its requests is nothing to another."""


def _name_meta(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.NAME_BYTES_MAX, description=about or None)


def _key_meta(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.KEY_BYTES_MAX, description=about or None)


JobId = Annotated[int, Meta(ge=1, le=limits.JOB_ID_MAX, description="The job's id.")]
Names = Annotated[list[Annotated[str, _name_meta("")]], Meta(min_length=1, max_length=limits.NAMES_PER_CLAIM_MAX)]
Ttl = Annotated[
    int,
    Meta(
        ge=limits.LEASE_MS_MIN // 1_000,
        le=limits.LEASE_MS_MAX // 1_000,
        description="Seconds until the claim expires if you fall silent; 300 unless given. The server renews it while you work.",
    ),
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=REQUEST_ID_MAX,
        description="Give the same one to repeat a request safely: it is done once.",
    ),
]
Attempt = Annotated[
    int,
    Meta(ge=0, le=limits.REV_MAX, description="Only if it is this attempt; by default the one you claimed."),
]
SessionName = Annotated[
    str,
    _name_meta("Leave out unless a refusal asks for it; then give it with every call."),
]


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool."""

    session: SessionName | None = None


class WriteArguments(ToolArguments, frozen=True, kw_only=True):
    request_id: RequestId | None = None


class HeldJobArguments(WriteArguments, frozen=True, kw_only=True):
    id: JobId
    attempt: Attempt | None = None


class GetJobArguments(ToolArguments, frozen=True, kw_only=True):
    id: JobId


class GetContentsArguments(GetJobArguments, frozen=True, kw_only=True):
    part: Annotated[Literal["args", "checkpoint", "last_error", "result"], Meta(description="Which of its contents.")]
    offset: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="Characters to pass over: `next_offset`.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PIECE_CHARACTERS_MAX, description="Characters at most.")] = (
        PIECE_CHARACTERS_DEFAULT
    )


class ListJobsArguments(ToolArguments, frozen=True, kw_only=True):
    status: Annotated[list[Status], Meta(min_length=1, max_length=len(Status), description="Only these.")] | None = None
    phase: Annotated[Phase, Meta(description="Only running and stalled ones in this phase.")] | None = None
    queue: Annotated[str, _name_meta("Only those in this queue.")] | None = None
    kind: Annotated[str, _name_meta("Only those of this kind.")] | None = None
    mine: Annotated[bool, Meta(description="Only those that you hold.")] = False
    after: Annotated[int, Meta(ge=0, le=limits.JOB_ID_MAX, description="The next page: `next_after` of the page before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PAGE_MAX, description="Jobs at most.")] = PAGE_DEFAULT


class ClaimJobArguments(HeldJobArguments, frozen=True, kw_only=True):
    ttl_s: Ttl | None = None


_HELD_JOB_FIRST = "a job in hand comes first all the same"


class ResumeArguments(WriteArguments, frozen=True, kw_only=True):
    queues: Annotated[Names, Meta(description=f"Only from these queues; {_HELD_JOB_FIRST}.")] | None = None
    kinds: Annotated[Names, Meta(description=f"Only of these kinds; {_HELD_JOB_FIRST}.")] | None = None
    ttl_s: Ttl | None = None


class ProgressArguments(HeldJobArguments, frozen=True, kw_only=True):
    progress: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="How far it is, in whatever unit the job has.")]
    stage: Annotated[str, _name_meta("Where the work is.")] | None = None
    checkpoint: Annotated[Any, Meta(description="Any JSON value but null, for whoever goes on with the job, be it you.")] = None


class CompleteArguments(HeldJobArguments, frozen=True, kw_only=True):
    result: Annotated[Any, Meta(description="What came of it: any JSON value.")] = None


class FailArguments(HeldJobArguments, frozen=True, kw_only=True):
    error: Annotated[
        str, Meta(min_length=1, max_length=limits.ERROR_BYTES_MAX, description="What went wrong, for whoever tries next.")
    ]
    retryable: Annotated[bool, Meta(description="False where no retry will mend it.")] = True
    reason_code: (
        Annotated[
            ReasonCode,
            Meta(
                description="Why. Where it is not retryable, the job is dead-lettered for this reason; else it is kept with it."
            ),
        ]
        | None
    ) = None
    failure_stage: Annotated[FailureStage, Meta(description="Where it broke.")] | None = None
    retry_after_s: (
        Annotated[int, Meta(ge=0, le=limits.DELAY_US_MAX // 1_000_000, description="Not before so many seconds.")] | None
    ) = None


class ReleaseArguments(HeldJobArguments, frozen=True, kw_only=True):
    reason: (
        Annotated[str, Meta(min_length=1, max_length=limits.REASON_BYTES_MAX, description="Why, for readers of the history.")]
        | None
    ) = None


class EnqueueArguments(WriteArguments, frozen=True, kw_only=True):
    kind: Annotated[str, _name_meta("What kind of work it is.")]
    args: Annotated[dict[str, Any], Meta(description="What it is about.")] = {}
    queue: Annotated[str, _name_meta("Where it waits.")] = "default"
    priority: Annotated[int, Meta(ge=-limits.PRIORITY_MAX, le=limits.PRIORITY_MAX, description="Higher goes first.")] = 0
    delay_s: Annotated[
        int, Meta(ge=0, le=limits.DELAY_US_MAX // 1_000_000, description="Not before so many seconds from now.")
    ] = 0
    dedupe_key: Annotated[str, _key_meta("Where a live job has it, that one is the answer, and `is_new` is false.")] | None = None
    correlation_id: Annotated[str, _key_meta("What it belongs to.")] | None = None
    depends_on: Annotated[
        list[JobId], Meta(max_length=limits.DEPENDENCIES_MAX, description="Not before these have succeeded.")
    ] = []
    on_dependency_failure: Annotated[
        Literal["wait", "cancel", "dead_letter"], Meta(description="If one of those comes to nothing.")
    ] = "dead_letter"


TASK_FIELDS = (
    *("id", "kind", "status", "attempt", "available_at", "claim_expires_at", "cancel_requested"),
    *("args", "checkpoint", "last_error", "result", "omitted", "replayed"),
)
"""The fields of a task that the schemas have. A task in an answer has more."""
OPAQUE_FIELDS = ("policy",)
"""Fields of an answer whose schema does not say what is in them."""
ENUM_MAX = 10
"""An answer's field with more values than this is a plain text in the schema."""


class TaskResult(msgspec.Struct, frozen=True):
    task: Task


class AttemptEndResult(msgspec.Struct, frozen=True):
    """`attempts_left` is there where the job is queued again; an attempt that was handed back does not count."""

    task: Task
    attempts_left: int | msgspec.UnsetType = msgspec.UNSET


class EnqueueResult(msgspec.Struct, frozen=True):
    task: Task
    is_new: bool
    """False where a dedupe key found a job that was there already."""


class TaskListResult(msgspec.Struct, frozen=True):
    tasks: list[Task]
    next_after: int | None


class ContentsResult(msgspec.Struct, frozen=True):
    """A piece of what a task is about, as JSON. `characters` is how long the whole is; the next piece is at `next_offset`."""

    id: int
    part: str
    text: str
    offset: int
    characters: int
    next_offset: int | None


class ErrorResult(msgspec.Struct, frozen=True):
    """The structure of an answer that is an error."""

    error: str
    error_code: str
    error_context: dict[str, Any]
    suggested_action: str


def to_json_value(answer: Any) -> Any:
    """As JSON has it. In rows of a list, what is null is left out."""
    found = msgspec.json.decode(msgspec.json.encode(answer, enc_hook=str))
    if isinstance(answer, TaskListResult):
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
    bare: dict[str, Any] = _names_and_types(_schema(kind))
    return bare


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Without $ref: not every client resolves it."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    slim: dict[str, Any] = _compact(made, parts)
    slim.pop("description", None)
    return slim


def _compact(schema: Any, parts: dict[str, Any]) -> Any:
    """The same in fewer characters. What may be null says so in its type. Upper bounds that no caller reaches are left out."""
    if isinstance(schema, list):
        return [_compact(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**parts[schema["$ref"]], **{name: part for name, part in schema.items() if name != "$ref"}}
    slim = {name: _compact(part, parts) for name, part in schema.items() if not _is_omitted(name, part)}
    match slim.get("anyOf"):
        case [{"enum": values, **rest}, {"type": "null"}]:
            del slim["anyOf"]
            return {"enum": [*values, None], **rest, **slim}
        case [{"type": str() as kind, **rest}, {"type": "null"}]:
            del slim["anyOf"]
            return {"type": [kind, "null"], **rest, **slim}
    return slim


def _is_omitted(name: str, part: Any) -> bool:
    """Whether a keyword is left out. A property of the same name is not: its part is a schema."""
    match name, part:
        case ("title" | "maxLength" | "maxItems", str() | int()) | ("default", None) | ("required", []):
            return True
        case "maximum", int() as most:
            return most >= limits.REV_MAX
    return False


def _names_and_types(schema: Any) -> Any:
    """Only names and types, and of a task only some."""
    if isinstance(schema, list):
        return [_names_and_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {name: _names_and_types(part) for name, part in schema.items() if name in ("type", "items", "anyOf", "enum")}
    if len(bare.get("enum", ())) > ENUM_MAX:
        bare = {"type": "string"}
    if fields := schema.get("properties", {}):
        kept = TASK_FIELDS if "cancel_requested" in fields else fields
        bare["properties"] = {
            name: {"type": "object"} if name in OPAQUE_FIELDS else _names_and_types(fields[name]) for name in kept
        }
    return bare
