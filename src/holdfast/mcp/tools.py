"""The tools: what each is called, what a model is told of it, what it takes and what it answers."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mcp_types as types
import msgspec

from holdfast.agent import Brief, InFull
from holdfast.core.explain import Explanation
from holdfast.errors import HoldfastError, ValidationError, told
from holdfast.mcp import asks, verbs
from holdfast.mcp.answers import Contents, Enqueued, OneTask, Refused, Tasks, input_schema, output_schema, plain
from holdfast.mcp.caller import Caller
from holdfast.mcp.words import words
from holdfast.telemetry.lines import visible

log = logging.getLogger("holdfast.mcp")


class Hints(NamedTuple):
    """What a client may assume of a tool without asking its user."""

    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False


LOOKS = Hints(read_only=True, idempotent=True)
RENEWS = Hints(idempotent=True)
ADDS = Hints()
ENDS = Hints(destructive=True)


class ToolEntry(NamedTuple):
    title: str
    about: str
    ask: type[asks.Ask]
    answer: type[msgspec.Struct]
    hints: Hints
    verb: Callable[[Caller, Any], Any]


TOOLS: dict[str, ToolEntry] = {
    "resume": ToolEntry(
        "Take up work",
        "Call this first, and again after each job you have ended: it goes on with the job you were at, or claims the next one "
        "in order, and tells you about it, with what has happened to it since you were last told. The job is yours and running "
        "afterwards. Where there is nothing to do, `task` is null, and `nothing` says why.",
        asks.Resume,
        Brief,
        ADDS,
        verbs.resume,
    ),
    "list_jobs": ToolEntry(
        "List jobs",
        "Look at what is there, by status, queue or kind, or with `mine` at what you hold; what is null is left out. It changes "
        "nothing and claims nothing; use resume to get work.",
        asks.ListJobs,
        Tasks,
        LOOKS,
        verbs.list_jobs,
    ),
    "get_job": ToolEntry(
        "Look at a job",
        "All about one job, whoever holds it: where it stands, its arguments, result and last error, its newest history, what it "
        "waits for and unlocks. It changes nothing.",
        asks.GetJob,
        InFull,
        LOOKS,
        verbs.get_job,
    ),
    "get_contents": ToolEntry(
        "Read a job's contents",
        "A job's args, checkpoint, last error or result as JSON text, piece by piece, where they are too long for other answers. "
        "It changes nothing.",
        asks.GetContents,
        Contents,
        LOOKS,
        verbs.get_contents,
    ),
    "explain": ToolEntry(
        "Explain a job",
        "Why a job stands where it stands, what happens next and when, and what would change that: tools for you, and commands "
        "that a person would type. Use it when a job does not run, or you are refused and do not know why.",
        asks.GetJob,
        Explanation,
        LOOKS,
        verbs.explain,
    ),
    "claim_job": ToolEntry(
        "Claim a job",
        "Claim and start one job by its id, where you were told to work on that very one. It has to be free, your own, or one "
        "whose claim has expired; else lease_conflict says who has it and until when.",
        asks.ClaimJob,
        OneTask,
        RENEWS,
        verbs.claim_job,
    ),
    "heartbeat": ToolEntry(
        "Renew a claim",
        "Renew your claim on a job and learn whether somebody wants it cancelled. The server does it by itself while you work, "
        "so call it only to ask, or after a very long pause.",
        asks.OnAJob,
        OneTask,
        RENEWS,
        verbs.heartbeat,
    ),
    "progress": ToolEntry(
        "Report progress",
        "Say how far you are with a job you hold, and leave a checkpoint: whatever you would need to know to go on from here if "
        "you had forgotten everything. Call it after each step that would be a pity to repeat.",
        asks.Progress,
        OneTask,
        RENEWS,
        verbs.progress,
    ),
    "complete": ToolEntry(
        "Complete a job",
        "The job you hold is done, and this is what came of it. It cannot be undone. After fence_lost the job is not yours any "
        "more: do not try again.",
        asks.Complete,
        OneTask,
        ENDS,
        verbs.complete,
    ),
    "fail": ToolEntry(
        "Fail a job",
        "The job you hold went wrong. It is tried again later while attempts are left, unless `retryable` is false: then it has "
        "failed for good.",
        asks.Fail,
        OneTask,
        ENDS,
        verbs.fail,
    ),
    "release": ToolEntry(
        "Hand a job back",
        "Hand a job you hold back, undone: others may have it at once, and the attempt does not count. Use it when you stop "
        "before the end, or when somebody wants the job cancelled. resume may offer it to you again when it is next; where "
        "nobody can do it, use fail with `retryable` false.",
        asks.OnAJob,
        OneTask,
        ADDS,
        verbs.release,
    ),
    "enqueue": ToolEntry(
        "Enqueue a job",
        "Put in new work, for yourself or others. Give a `dedupe_key` where the same work must not be there twice, and "
        "`depends_on` where it has to wait for other jobs. To have it cancelled again, ask a person.",
        asks.Enqueue,
        Enqueued,
        ADDS,
        verbs.enqueue,
    ),
}


def listed() -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            title=tool.title,
            description=tool.about,
            input_schema=input_schema(tool.ask),
            output_schema=output_schema(tool.answer),
            annotations=types.ToolAnnotations(
                title=tool.title,
                read_only_hint=tool.hints.read_only,
                idempotent_hint=tool.hints.idempotent,
                destructive_hint=tool.hints.destructive,
                open_world_hint=False,
            ),
        )
        for name, tool in TOOLS.items()
    ]


def call(tool: ToolEntry, caller: Caller, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
    """What the tool answers. A refusal is an answer too, and one that a model can act upon; nothing is raised."""
    try:
        ask = _read(tool.ask, arguments)
        caller.calls(ask.session)
        answer = tool.verb(caller, ask)
        return _result(plain(answer), words(answer))
    except HoldfastError as error:
        return _refused(error)
    except Exception:
        log.exception("a call failed")
        return _refused(HoldfastError("the server could not do this, for a reason that is in its log"))


def _read(kind: type[asks.Ask], arguments: Mapping[str, Any] | None) -> asks.Ask:
    try:
        return msgspec.convert(dict(arguments or {}), kind)
    except msgspec.ValidationError as error:
        raise ValidationError(str(error)) from None


def _refused(error: HoldfastError) -> types.CallToolResult:
    said = visible(f"{error.code}: {error.message}. {error.action}".strip())
    return _result(plain(msgspec.convert(told(error), Refused)), said, is_error=True)


def _result(structured: Any, text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=is_error
    )
