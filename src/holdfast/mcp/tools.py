"""The tools: their functions, their descriptions, and how a call is answered."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import mcp_types as types
import msgspec

from holdfast.agent import Agent, Brief, TaskDetails, get_task
from holdfast.agent.tasks import task_of
from holdfast.core import limits
from holdfast.core.deadlines import counted_attempts
from holdfast.core.explain import Explanation, Situation
from holdfast.core.explain.model import Remedy
from holdfast.core.model import JobRecord, Status
from holdfast.errors import HoldfastError, NotFound, ValidationError, error_fields
from holdfast.ledger.options import GONE
from holdfast.ledger.verbs.declarations import declared_item
from holdfast.mcp import schemas
from holdfast.mcp.caller import Caller
from holdfast.mcp.formatting import format_answer
from holdfast.mcp.rights import CallerRights, Need
from holdfast.mcp.schemas import (
    AttemptEndResult,
    ContentsResult,
    EnqueueResult,
    TaskListResult,
    TaskResult,
    input_schema,
    output_schema,
    to_json_value,
)
from holdfast.telemetry.formatters import printable


def list_jobs(caller: Caller, request: schemas.ListJobsArguments) -> TaskListResult:
    holder: dict[str, Any] = (
        {"owner": (key := caller.session_key(request)).name, "incarnation": key.session} if request.mine else {}
    )
    status = [one.value for one in request.status] if request.status else None
    filters: dict[str, Any] = {"status": status, "phase": request.phase, "queue": request.queue, "kind": request.kind}
    page = caller.ledger.list(**filters, after=request.after, limit=request.limit, **holder)
    rows = [task_of(job.record, _short_args(job.record)) for job in page if caller.rights.sees(job.queue)]
    return TaskListResult(rows, page.next_after)


def _short_args(job: JobRecord) -> dict[str, Any]:
    """Return the args if they are short enough to tell rows apart, else their length."""
    short = len(job.args) <= limits.MCP_ROW_BYTES_MAX
    return {"args": msgspec.Raw(job.args)} if short else {"omitted": {"args": len(job.args)}}


def get_job(caller: Caller, request: schemas.GetJobArguments) -> TaskDetails:
    return get_task(caller.ledger, caller.check_visible(request.id), bytes_max=limits.AGENT_VALUE_BYTES_MAX)


def get_contents(caller: Caller, request: schemas.GetContentsArguments) -> ContentsResult:
    body: bytes | None = getattr(caller.ledger.get(caller.check_visible(request.id)).record, request.part)
    if body is None:
        raise NotFound(f"job {request.id} has no {request.part}", job_id=request.id)
    text = caller.rights.show_json(request.part, body).decode()
    end = request.offset + request.limit
    next_offset = end if end < len(text) else None
    return ContentsResult(request.id, request.part, text[request.offset : end], request.offset, len(text), next_offset)


def explain(caller: Caller, request: schemas.GetJobArguments) -> Explanation:
    explanation = caller.explain(caller.check_visible(request.id))
    if explanation.situation not in (Situation.READY, Situation.REQUEUED):
        return explanation
    claim = Remedy(f"claim_job with id {request.id}", "claims and starts it for you")
    text = f"{explanation.text} You can claim it: call {claim.command}."
    return msgspec.structs.replace(explanation, text=text, commands=[claim, *explanation.commands])


def claim_job(caller: Caller, request: schemas.ClaimJobArguments) -> TaskResult:
    def start(agent: Agent, request_id: str | None) -> TaskResult:
        able = agent.with_labels(request.labels)
        return TaskResult(able.start(request.id, ttl=request.ttl_s, attempt=request.attempt, request_id=request_id))

    done: TaskResult = caller.claim(request, start, caller.check_visible(request.id))
    return done


def resume(caller: Caller, request: schemas.ResumeArguments) -> Brief:
    queues = caller.rights.claimable(caller.ledger, request.queues)

    def resume_agent(agent: Agent, request_id: str | None) -> Brief:
        able = agent.with_labels(request.labels)
        return able.resume(queues=queues, kinds=request.kinds, ttl=request.ttl_s, request_id=request_id)

    brief: Brief = caller.claim(request, resume_agent)
    return brief


def heartbeat(caller: Caller, request: schemas.HeldJobArguments) -> TaskResult:
    return caller.act_on_held(request, Agent.heartbeat)


def progress(caller: Caller, request: schemas.ProgressArguments) -> TaskResult:
    checkpoint = {} if request.checkpoint is None else {"checkpoint": request.checkpoint}
    return caller.act_on_held(request, Agent.heartbeat, progress=request.progress, stage=request.stage, **checkpoint)


def complete(caller: Caller, request: schemas.CompleteArguments) -> TaskResult:
    return caller.act_on_held(request, Agent.complete, result=request.result)


def fail(caller: Caller, request: schemas.FailArguments) -> AttemptEndResult:
    done = caller.act_on_held(
        request,
        Agent.fail,
        error=request.error,
        retryable=request.retryable,
        reason_code=request.reason_code,
        failure_stage=request.failure_stage,
        retry_after=request.retry_after_s,
    )
    return _with_attempts_left(caller, done)


def release(caller: Caller, request: schemas.ReleaseArguments) -> AttemptEndResult:
    return _with_attempts_left(caller, caller.act_on_held(request, Agent.release, reason=request.reason))


def _with_attempts_left(caller: Caller, done: TaskResult) -> AttemptEndResult:
    """Add the number of attempts left, if the job is still in the state of the answer. Ignore errors: the verb is done."""
    with suppress(HoldfastError):
        job = caller.ledger.get(done.task.id).record
        if job.rev == done.task.rev and job.status is Status.QUEUED and job.policy is not None:
            return AttemptEndResult(done.task, max(0, job.policy.attempts_max - counted_attempts(job)))
    return AttemptEndResult(done.task)


def enqueue(caller: Caller, request: schemas.EnqueueArguments) -> EnqueueResult:
    names = ("queue", "priority", "dedupe_key", "correlation_id", "limits", "partition", "for_worker")
    given = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    if request.depends_on:
        given |= {"depends_on": request.depends_on, "on_dependency_failure": request.on_dependency_failure}
    given |= {"delay": request.delay_s} if request.delay_s else {}
    given |= {"requires": request.requires} if request.requires else {}
    given |= {"dedupe_for": request.dedupe_for_s} if request.dedupe_for_s else {}
    given = declared_item({"queue": None, **given, "kind": request.kind}, caller.ledger.declarations())
    given["queue"] = given["queue"] or "default"
    caller.rights.check_queue(given["queue"])
    job = caller.ledger.enqueue(
        given.pop("kind"), request.args, actor=caller.actor(request), request_id=caller.scoped_request_id(request), **given
    )
    return EnqueueResult(task_of(job.record), job.is_new)


class ToolHints(NamedTuple):
    """What a client may assume about a tool without asking its user."""

    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False


READ_ONLY = ToolHints(read_only=True, idempotent=True)
IDEMPOTENT = ToolHints(idempotent=True)
ADDITIVE = ToolHints()
DESTRUCTIVE = ToolHints(destructive=True)


class ToolEntry(NamedTuple):
    title: str
    description: str
    arguments: type[schemas.ToolArguments]
    answer: type[msgspec.Struct]
    hints: ToolHints
    need: Need
    verb: Callable[[Caller, Any], Any]


def _tool(title: str, description: str, verb: Callable[[Caller, Any], Any], hints: ToolHints, need: Need = "hold") -> ToolEntry:
    """Return a tool. The annotations of its verb are the types of its arguments and its answer."""
    types_of = verb.__annotations__
    return ToolEntry(title, description, types_of["request"], types_of["return"], hints, need, verb)


TOOLS: dict[str, ToolEntry] = {
    "resume": _tool(
        "Get work",
        "Call this first, and again after each job you have ended. It returns the job you were working on, or claims and starts "
        "the next one, with the events since your last brief of it. You hold the job afterwards, and it is running. If there is "
        "no job for you, `task` is null and `nothing` says why.",
        resume,
        ADDITIVE,
    ),
    "list_jobs": _tool(
        "List jobs",
        "List jobs by status, phase, queue or kind, or with `mine` the jobs you hold. Null fields are left out. It changes "
        "and claims nothing: call resume to get work.",
        list_jobs,
        READ_ONLY,
        need="read",
    ),
    "get_job": _tool(
        "Read a job",
        "Return the details of any job: its state, arguments, result and last error, its newest events, and the jobs that it "
        "waits for or unlocks. It changes nothing.",
        get_job,
        READ_ONLY,
        need="read",
    ),
    "get_contents": _tool(
        "Read a job's contents",
        "Return a piece of a job's args, checkpoint, last error or result as JSON text, if it is too long for other answers. "
        "It changes nothing.",
        get_contents,
        READ_ONLY,
        need="read",
    ),
    "explain": _tool(
        "Explain a job",
        "Explain why a job is in its state, what happens next and when, and how to change that: tools for you, and commands "
        "for a person. Use it when a job does not run, or when you get an error that you do not understand.",
        explain,
        READ_ONLY,
        need="read",
    ),
    "claim_job": _tool(
        "Claim a job",
        "Claim and start one job by its id. Use it only if you were asked to work on that job. The job must be free, yours, or "
        "have an expired claim; else lease_conflict names its holder and the end of the claim.",
        claim_job,
        IDEMPOTENT,
    ),
    "heartbeat": _tool(
        "Renew a claim",
        "Renew your claim on a job, and check whether its cancellation was requested. The server renews claims while you work, "
        "so call it only for that check, or after a very long pause.",
        heartbeat,
        IDEMPOTENT,
    ),
    "progress": _tool(
        "Report progress",
        "Report progress on a job you hold and save a checkpoint: everything an agent without your memory needs to continue "
        "from here. Call it after each step that is expensive to repeat.",
        progress,
        IDEMPOTENT,
    ),
    "complete": _tool(
        "Complete a job",
        "Complete a job you hold with its result. This cannot be undone. After fence_lost the job is no longer yours: do not "
        "try again.",
        complete,
        DESTRUCTIVE,
    ),
    "fail": _tool(
        "Fail a job",
        "Report that a job you hold has failed. It is retried later while attempts are left. If `retryable` is false, it is "
        "not retried.",
        fail,
        DESTRUCTIVE,
    ),
    "release": _tool(
        "Release a job",
        "Put a job you hold back into its queue. Other agents can claim it at once, and the attempt does not count. Use it when "
        "you stop before the end or cancellation was requested; resume may return it to you again. If the job cannot be done "
        "at all, use fail with `retryable` false.",
        release,
        ADDITIVE,
    ),
    "enqueue": _tool(
        "Enqueue a job",
        "Add a new job, for yourself or others. Give a `dedupe_key` if there must not be a second such job, and `depends_on` "
        "if it has to wait for other jobs. To cancel it later, ask a person.",
        enqueue,
        ADDITIVE,
        need="enqueue",
    ),
}


def tool_list(rights: CallerRights) -> list[types.Tool]:
    """Return the tools that the caller may use."""
    return [
        types.Tool(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=input_schema(tool.arguments),
            output_schema=output_schema(tool.answer),
            annotations=_annotations(tool.hints),
        )
        for name, tool in TOOLS.items()
        if rights.may(tool.need)
    ]


def _annotations(hints: ToolHints) -> types.ToolAnnotations:
    """Return only hints that differ from the protocol's defaults: a tool writes, is destructive, not idempotent, open-world."""
    return types.ToolAnnotations(
        read_only_hint=hints.read_only or None,
        idempotent_hint=hints.idempotent or None,
        destructive_hint=None if hints.destructive or hints.read_only else False,
        open_world_hint=False,
    )


log = logging.getLogger("holdfast.mcp")


def call_tool(tool: ToolEntry, caller: Caller, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
    """Call the tool and return its answer. An error is also an answer, which a model can act upon; nothing is raised."""
    try:
        request = _parse_arguments(tool.arguments, arguments)
        caller.note_activity(request.session)
        caller.rights.check(tool.need, tool.verb.__name__)
        answer = caller.rights.show(tool.verb(caller, request))
        return _call_result(to_json_value(answer), format_answer(answer))
    except HoldfastError as error:
        return _error_result(error)
    except Exception:
        log.exception("a call failed")
        return _error_result(HoldfastError("the server failed to do this; its log has the reason"))


def _parse_arguments(kind: type[schemas.ToolArguments], arguments: Mapping[str, Any] | None) -> schemas.ToolArguments:
    try:
        return msgspec.convert(dict(arguments or {}), kind)
    except msgspec.ValidationError as error:
        text = str(error)
        unknown = text.removeprefix("Object contains unknown field `").rstrip("`")
        raise ValidationError(text, action=GONE.get(unknown)) from None


def _error_result(error: HoldfastError) -> types.CallToolResult:
    text = printable(f"{error.code}: {error.message}. {error.action}".strip())
    return _call_result(to_json_value(error_fields(error)), text, is_error=True)


def _call_result(structured: Any, text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=is_error
    )
