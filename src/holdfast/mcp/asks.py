"""What each tool is asked: its arguments, their bounds, and what they mean. Nothing else is accepted."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.core import limits
from holdfast.core.model import FailureStage, Phase, ReasonCode, Status

PAGE = 20
PIECE = 16_000
REQUEST_ID_MAX = limits.KEY_BYTES_MAX - limits.NAME_BYTES_MAX - len("255::")
"""The ledger is given it behind the session's name: what one client calls its requests is nothing to another."""


def _name(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.NAME_BYTES_MAX, description=about or None)


def _key(about: str) -> Any:
    return Meta(min_length=1, max_length=limits.KEY_BYTES_MAX, description=about or None)


JobId = Annotated[int, Meta(ge=1, le=limits.JOB_ID_MAX, description="The job's id.")]
Names = Annotated[list[Annotated[str, _name("")]], Meta(min_length=1, max_length=limits.NAMES_PER_CLAIM_MAX)]
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
    _name("Leave out unless a refusal asks for it; then give it with every call."),
]


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool."""

    session: SessionName | None = None


class Change(Ask, frozen=True, kw_only=True):
    request_id: RequestId | None = None


class OnAJob(Change, frozen=True, kw_only=True):
    id: JobId
    attempt: Attempt | None = None


class GetJob(Ask, frozen=True, kw_only=True):
    id: JobId


class GetContents(GetJob, frozen=True, kw_only=True):
    part: Annotated[Literal["args", "checkpoint", "last_error", "result"], Meta(description="Which of its contents.")]
    offset: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="Characters to pass over: `next_offset`.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PIECE_CHARACTERS_MAX, description="Characters at most.")] = PIECE


class ListJobs(Ask, frozen=True, kw_only=True):
    status: Annotated[list[Status], Meta(min_length=1, max_length=len(Status), description="Only these.")] | None = None
    phase: Annotated[Phase, Meta(description="Only running and stalled ones in this phase.")] | None = None
    queue: Annotated[str, _name("Only those in this queue.")] | None = None
    kind: Annotated[str, _name("Only those of this kind.")] | None = None
    mine: Annotated[bool, Meta(description="Only those that you hold.")] = False
    after: Annotated[int, Meta(ge=0, le=limits.JOB_ID_MAX, description="The next page: `next_after` of the page before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.MCP_PAGE_MAX, description="Jobs at most.")] = PAGE


class ClaimJob(OnAJob, frozen=True, kw_only=True):
    ttl_s: Ttl | None = None


_IN_HAND = "a job in hand comes first all the same"


class Resume(Change, frozen=True, kw_only=True):
    queues: Annotated[Names, Meta(description=f"Only from these queues; {_IN_HAND}.")] | None = None
    kinds: Annotated[Names, Meta(description=f"Only of these kinds; {_IN_HAND}.")] | None = None
    ttl_s: Ttl | None = None


class Progress(OnAJob, frozen=True, kw_only=True):
    progress: Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX, description="How far it is, in whatever unit the job has.")]
    stage: Annotated[str, _name("Where the work is.")] | None = None
    checkpoint: Annotated[Any, Meta(description="Any JSON value but null, for whoever goes on with the job, be it you.")] = None


class Complete(OnAJob, frozen=True, kw_only=True):
    result: Annotated[Any, Meta(description="What came of it: any JSON value.")] = None


class Fail(OnAJob, frozen=True, kw_only=True):
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


class Release(OnAJob, frozen=True, kw_only=True):
    reason: (
        Annotated[str, Meta(min_length=1, max_length=limits.REASON_BYTES_MAX, description="Why, for readers of the history.")]
        | None
    ) = None


class Enqueue(Change, frozen=True, kw_only=True):
    kind: Annotated[str, _name("What kind of work it is.")]
    args: Annotated[dict[str, Any], Meta(description="What it is about.")] = {}
    queue: Annotated[str, _name("Where it waits.")] = "default"
    priority: Annotated[int, Meta(ge=-limits.PRIORITY_MAX, le=limits.PRIORITY_MAX, description="Higher goes first.")] = 0
    delay_s: Annotated[
        int, Meta(ge=0, le=limits.DELAY_US_MAX // 1_000_000, description="Not before so many seconds from now.")
    ] = 0
    dedupe_key: Annotated[str, _key("Where a live job has it, that one is the answer, and `is_new` is false.")] | None = None
    correlation_id: Annotated[str, _key("What it belongs to.")] | None = None
    depends_on: Annotated[
        list[JobId], Meta(max_length=limits.DEPENDENCIES_MAX, description="Not before these have succeeded.")
    ] = []
    on_dependency_failure: Annotated[
        Literal["wait", "cancel", "dead_letter"], Meta(description="If one of those comes to nothing.")
    ] = "dead_letter"
