"""The tools: what each is called, what a model is told of it, what it takes and what it answers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import mcp_types as types
import msgspec

from holdfast.agent import Brief, InFull
from holdfast.core.explain import Explanation
from holdfast.mcp import asks, verbs
from holdfast.mcp.answers import Contents, Ended, Enqueued, OneTask, Tasks, input_schema, output_schema
from holdfast.mcp.caller import Caller


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
        "Look at jobs by status, phase, queue or kind, or with `mine` at what you hold; null fields are left out. It changes "
        "and claims nothing: call resume to get work.",
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
        Ended,
        ENDS,
        verbs.fail,
    ),
    "release": ToolEntry(
        "Hand a job back",
        "Hand a job you hold back, undone: others may have it at once, and the attempt does not count. Use it when you stop "
        "before the end, or when somebody wants the job cancelled. resume may offer it to you again when it is next; where "
        "nobody can do it, use fail with `retryable` false.",
        asks.Release,
        Ended,
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
            annotations=_annotations(tool.hints),
        )
        for name, tool in TOOLS.items()
    ]


def _annotations(hints: Hints) -> types.ToolAnnotations:
    """Only what differs from the protocol's defaults: a tool writes, destroys, repeats its effect and acts on the open world."""
    return types.ToolAnnotations(
        read_only_hint=hints.read_only or None,
        idempotent_hint=hints.idempotent or None,
        destructive_hint=None if hints.destructive or hints.read_only else False,
        open_world_hint=False,
    )
