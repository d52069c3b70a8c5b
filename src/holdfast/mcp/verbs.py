"""What each tool does: an agent's verb, and whether its job is held from here on."""

from contextlib import suppress
from typing import Any

import msgspec

from holdfast.agent import Agent, Brief, InFull, look
from holdfast.agent.tasks import task_of
from holdfast.core import limits
from holdfast.core.deadlines import tries
from holdfast.core.explain import Explanation, Situation
from holdfast.core.explain.shapes import Remedy
from holdfast.core.model import Job, Status
from holdfast.errors import HoldfastError, NotFound
from holdfast.mcp import asks
from holdfast.mcp.answers import Contents, Ended, Enqueued, OneTask, Tasks
from holdfast.mcp.caller import Caller


def list_jobs(caller: Caller, ask: asks.ListJobs) -> Tasks:
    whose: dict[str, Any] = {"owner": (place := caller.place(ask)).name, "incarnation": place.session} if ask.mine else {}
    status = [one.value for one in ask.status] if ask.status else None
    chosen: dict[str, Any] = {"status": status, "phase": ask.phase, "queue": ask.queue, "kind": ask.kind}
    page = caller.ledger.list(**chosen, after=ask.after, limit=ask.limit, **whose)
    rows = [task_of(job.record, _args_of(job.record)) for job in page]
    return Tasks(rows, page.next_after)


def _args_of(job: Job) -> dict[str, Any]:
    """As far as they help to tell one row from another."""
    short = len(job.args) <= limits.MCP_ROW_BYTES_MAX
    return {"args": msgspec.Raw(job.args)} if short else {"omitted": {"args": len(job.args)}}


def get_job(caller: Caller, ask: asks.GetJob) -> InFull:
    return look(caller.ledger, ask.id, bytes_max=limits.AGENT_VALUE_BYTES_MAX)


def get_contents(caller: Caller, ask: asks.GetContents) -> Contents:
    body: bytes | None = getattr(caller.ledger.get(ask.id).record, ask.part)
    if body is None:
        raise NotFound(f"job {ask.id} has no {ask.part}", job_id=ask.id)
    whole = body.decode()
    end = ask.offset + ask.limit
    more = end if end < len(whole) else None
    return Contents(ask.id, ask.part, whole[ask.offset : end], ask.offset, len(whole), more)


def explain(caller: Caller, ask: asks.GetJob) -> Explanation:
    found = caller.ledger.explain(ask.id, to_claim=True)
    if found.situation not in (Situation.READY, Situation.REQUEUED):
        return found
    claim = Remedy(f"claim_job with id {ask.id}", "claims and starts it for you")
    text = f"{found.text} You can claim it: call {claim.command}."
    return msgspec.structs.replace(found, text=text, commands=[claim, *found.commands])


def claim_job(caller: Caller, ask: asks.ClaimJob) -> OneTask:
    def start(agent: Agent, request_id: str | None) -> OneTask:
        return OneTask(agent.start(ask.id, ttl=ask.ttl_s, attempt=ask.attempt, request_id=request_id))

    done: OneTask = caller.take(ask, start, ask.id)
    return done


def resume(caller: Caller, ask: asks.Resume) -> Brief:
    def go_on(agent: Agent, request_id: str | None) -> Brief:
        return agent.resume(queues=ask.queues, kinds=ask.kinds, ttl=ask.ttl_s, request_id=request_id)

    brief: Brief = caller.take(ask, go_on)
    return brief


def heartbeat(caller: Caller, ask: asks.OnAJob) -> OneTask:
    return caller.on(ask, Agent.heartbeat)


def progress(caller: Caller, ask: asks.Progress) -> OneTask:
    left = {} if ask.checkpoint is None else {"checkpoint": ask.checkpoint}
    return caller.on(ask, Agent.heartbeat, progress=ask.progress, stage=ask.stage, **left)


def complete(caller: Caller, ask: asks.Complete) -> OneTask:
    return caller.on(ask, Agent.complete, result=ask.result)


def fail(caller: Caller, ask: asks.Fail) -> Ended:
    done = caller.on(
        ask,
        Agent.fail,
        error=ask.error,
        retryable=ask.retryable,
        reason_code=ask.reason_code,
        failure_stage=ask.failure_stage,
        retry_after=ask.retry_after_s,
    )
    return _counted(caller, done)


def release(caller: Caller, ask: asks.Release) -> Ended:
    return _counted(caller, caller.on(ask, Agent.release, reason=ask.reason))


def _counted(caller: Caller, done: OneTask) -> Ended:
    """With how often it can still be tried, if it stands as the answer says. It is done, whether or not that can be read."""
    with suppress(HoldfastError):
        job = caller.ledger.get(done.task.id).record
        if job.rev == done.task.rev and job.status is Status.QUEUED and job.policy is not None:
            return Ended(done.task, max(0, job.policy.attempts_max - tries(job)))
    return Ended(done.task)


def enqueue(caller: Caller, ask: asks.Enqueue) -> Enqueued:
    names = ("queue", "priority", "dedupe_key", "correlation_id")
    given = {name: getattr(ask, name) for name in names if getattr(ask, name) is not None}
    if ask.depends_on:
        given |= {"depends_on": ask.depends_on, "on_dependency_failure": ask.on_dependency_failure}
    given |= {"delay": ask.delay_s} if ask.delay_s else {}
    made = caller.ledger.enqueue(ask.kind, ask.args, actor=caller.name, request_id=caller.request_of(ask), **given)
    return Enqueued(task_of(made.record), made.is_new)
