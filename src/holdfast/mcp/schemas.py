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
"""The ledger gets the request id prefixed with the session's name, so that ids of different clients do not collide."""


def _name_meta(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.NAME_BYTES_MAX, description=about or None)


def _key_meta(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.KEY_BYTES_MAX, description=about or None)


JobId = Annotated[int, Meta(ge=1, le=limits.JOB_ID_MAX)]
Names = Annotated[list[Annotated[str, _name_meta("")]], Meta(min_length=1, max_length=limits.NAMES_PER_CLAIM_MAX)]
Ttl = Annotated[
    int,
    Meta(
        ge=limits.LEASE_MS_MIN // 1_000,
        le=limits.LEASE_MS_MAX // 1_000,
        description="Seconds until the claim expires if you stop calling; default 300. The server renews it while you work.",
    ),
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=REQUEST_ID_MAX,
        description="Sent again with the same id, a request is done once.",
    ),
]
Attempt = Annotated[
    int,
    Meta(ge=0, le=limits.REV_MAX, description="The job must be at this attempt; default: the one you claimed."),
]
SessionName = Annotated[
    str,
    _name_meta("Only if an error asks for it; then with every call."),
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
    offset: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="Characters to skip: `next_offset`.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PIECE_CHARACTERS_MAX, description="Most characters to return.")] = (
        PIECE_CHARACTERS_DEFAULT
    )


class ListJobsArguments(ToolArguments, frozen=True, kw_only=True):
    status: Annotated[list[Status], Meta(min_length=1, max_length=len(Status), description="Only these.")] | None = None
    phase: Annotated[Phase, Meta(description="Only running and stalled jobs in this phase.")] | None = None
    queue: Annotated[str, _name_meta("Only jobs in this queue.")] | None = None
    kind: Annotated[str, _name_meta("Only jobs of this kind.")] | None = None
    mine: Annotated[bool, Meta(description="Only jobs that you hold.")] = False
    after: Annotated[int, Meta(ge=0, le=limits.JOB_ID_MAX, description="For the next page: `next_after` of this page.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PAGE_MAX, description="Most jobs to return.")] = PAGE_DEFAULT


Labels = Annotated[list[str], Meta(max_length=limits.LABELS_PER_WORKER_MAX)]


class ClaimJobArguments(HeldJobArguments, frozen=True, kw_only=True):
    ttl_s: Ttl | None = None
    labels: Labels = []


_HELD_JOB_FIRST = "a job you hold still comes first"


class ResumeArguments(WriteArguments, frozen=True, kw_only=True):
    queues: Annotated[Names, Meta(description=f"Only from these queues; {_HELD_JOB_FIRST}.")] | None = None
    kinds: Annotated[Names, Meta(description=f"Only of these kinds; {_HELD_JOB_FIRST}.")] | None = None
    ttl_s: Ttl | None = None
    labels: Annotated[Labels, Meta(description="What you have, for jobs that require it. Do not guess.")] = []


class ProgressArguments(HeldJobArguments, frozen=True, kw_only=True):
    progress: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="Amount of work done, in a unit of your choice.")]
    stage: Annotated[str, _name_meta("The current step of the work.")] | None = None
    checkpoint: Annotated[Any, Meta(description="What is needed to continue the job: any JSON value but null.")] = None


class CompleteArguments(HeldJobArguments, frozen=True, kw_only=True):
    result: Annotated[Any, Meta(description="The result: any JSON value.")] = None


class FailArguments(HeldJobArguments, frozen=True, kw_only=True):
    error: Annotated[
        str, Meta(min_length=1, max_length=limits.ERROR_BYTES_MAX, description="What went wrong, for the next attempt.")
    ]
    retryable: Annotated[bool, Meta(description="False if a retry cannot succeed.")] = True
    reason_code: (
        Annotated[
            ReasonCode,
            Meta(description="The reason. If the error is not retryable, the job is dead-lettered with it; else it is recorded."),
        ]
        | None
    ) = None
    failure_stage: Annotated[FailureStage, Meta(description="Where it failed.")] | None = None
    retry_after_s: (
        Annotated[int, Meta(ge=0, le=limits.DELAY_US_MAX // 1_000_000, description="Seconds until the next retry.")] | None
    ) = None


class ReleaseArguments(HeldJobArguments, frozen=True, kw_only=True):
    reason: (
        Annotated[str, Meta(min_length=1, max_length=limits.REASON_BYTES_MAX, description="Why, for readers of the history.")]
        | None
    ) = None


Draws = Annotated[
    dict[str, int], Meta(max_length=limits.LIMITS_PER_JOB_MAX, description="Units that it draws of limits, by name.")
]


class EnqueueArguments(WriteArguments, frozen=True, kw_only=True):
    kind: Annotated[str, _name_meta("What kind of work it is.")]
    args: Annotated[dict[str, Any], Meta(description="The job's arguments.")] = {}
    queue: Annotated[str, _name_meta("Its queue. Default: its handler's.")] | None = None
    priority: Annotated[int, Meta(ge=-limits.PRIORITY_MAX, le=limits.PRIORITY_MAX, description="Higher goes first.")] = 0
    delay_s: Annotated[int, Meta(ge=0, le=limits.DELAY_US_MAX // 1_000_000, description="Seconds before it can be claimed.")] = 0
    dedupe_key: Annotated[str, _key_meta("If a live job has this key, it is returned and `is_new` is false.")] | None = None
    dedupe_for_s: Annotated[int, Meta(ge=0, le=limits.DEDUPE_FOR_MS_MAX // 1_000, description="Seconds to keep the key.")] = 0
    correlation_id: Annotated[str, _key_meta("Groups related jobs.")] | None = None
    depends_on: Annotated[list[JobId], Meta(max_length=limits.DEPENDENCIES_MAX, description="Jobs that must succeed first.")] = []
    on_dependency_failure: Annotated[
        Literal["wait", "cancel", "dead_letter"], Meta(description="What to do if one of those does not succeed.")
    ] = "dead_letter"
    partition: Annotated[str, _name_meta("Partitions of a queue take turns.")] | None = None
    requires: Annotated[list[str], Meta(max_length=limits.LABELS_REQUIRED_MAX, description="Labels that its worker needs.")] = []
    for_worker: Annotated[str, _name_meta("The only worker or agent that may have it.")] | None = None
    limits: Draws | None = None


TASK_FIELDS = (
    *("id", "kind", "status", "attempt", "available_at", "claim_expires_at", "cancel_requested"),
    *("args", "checkpoint", "last_error", "result", "omitted", "replayed"),
)
"""The fields of a task that are in the output schemas. A task in an answer has more."""
OPAQUE_FIELDS = ("policy",)
"""Fields of an answer that are plain objects in its schema, without their properties."""
ENUM_MAX = 10
"""A field of an answer with more values than this is a plain string in the schema."""


class TaskResult(msgspec.Struct, frozen=True):
    task: Task


class AttemptEndResult(msgspec.Struct, frozen=True):
    """`attempts_left` is set if the job is queued again. A released attempt does not count."""

    task: Task
    attempts_left: int | msgspec.UnsetType = msgspec.UNSET


class EnqueueResult(msgspec.Struct, frozen=True):
    task: Task
    is_new: bool
    """False if a live job had the dedupe key already."""


class TaskListResult(msgspec.Struct, frozen=True):
    tasks: list[Task]
    next_after: int | None


class ContentsResult(msgspec.Struct, frozen=True):
    """A piece of one of a task's contents, as JSON text. `characters` is the full length; the next piece is at `next_offset`."""

    id: int
    part: str
    text: str
    offset: int
    characters: int
    next_offset: int | None


def to_json_value(answer: Any) -> Any:
    """Return the answer as JSON values. Rows of a list have no null fields."""
    decoded = msgspec.json.decode(msgspec.json.encode(answer, enc_hook=str))
    if isinstance(answer, TaskListResult):
        decoded["tasks"] = [{name: value for name, value in row.items() if value is not None} for row in decoded["tasks"]]
    return decoded


def output_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of an answer, with only names and types.

    A client sends this schema to its model with each conversation, so it is short: of a task it has only the fields that a
    model acts upon. No field is required, because some clients also check errors against the schema.
    """
    reduced: dict[str, Any] = _names_and_types(input_schema(kind))
    return reduced


def input_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, without $ref, because not every client resolves it.

    Its root is an object, as the protocol requires.
    """
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    compact: dict[str, Any] = _compact(schema, parts)
    compact.pop("description", None)
    return compact


def _compact(schema: Any, parts: dict[str, Any]) -> Any:
    """Return the schema in fewer characters: nullable fields as a type list, and no upper bounds that no caller reaches."""
    if isinstance(schema, list):
        return [_compact(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**parts[schema["$ref"]], **{name: part for name, part in schema.items() if name != "$ref"}}
    compact = {name: _compact(part, parts) for name, part in schema.items() if not _is_omitted(name, part)}
    match compact.get("anyOf"):
        case [{"enum": values, **rest}, {"type": "null"}]:
            del compact["anyOf"]
            return {"enum": [*values, None], **rest, **compact}
        case [{"type": str() as kind, **rest}, {"type": "null"}]:
            del compact["anyOf"]
            return {"type": [kind, "null"], **rest, **compact}
    return compact


UNREACHED = 10_000_000
"""An upper bound that is left out of schemas: no caller reaches it."""


def _is_omitted(name: str, part: Any) -> bool:
    """Return whether a keyword is left out. A property of the same name is kept: its value is a schema."""
    match name, part:
        case ("title" | "maxLength" | "maxItems", str() | int()) | ("default", None | []) | ("required", []):
            return True
        case "maximum", int() as most:
            return most >= UNREACHED
    return False


def _names_and_types(schema: Any) -> Any:
    """Return only the names and types of a schema, and of a task only TASK_FIELDS."""
    if isinstance(schema, list):
        return [_names_and_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    reduced = {name: _names_and_types(part) for name, part in schema.items() if name in ("type", "items", "anyOf", "enum")}
    if len(reduced.get("enum", ())) > ENUM_MAX:
        reduced = {"type": "string"}
    if fields := schema.get("properties", {}):
        kept = TASK_FIELDS if "cancel_requested" in fields else fields
        reduced["properties"] = {
            name: {"type": "object"} if name in OPAQUE_FIELDS else _names_and_types(fields[name]) for name in kept
        }
    return reduced
