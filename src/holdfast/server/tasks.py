"""Routes of agents: a task in focus, without fences. The session is the header Holdfast-Incarnation."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.agent import Agent, Brief, Collected, HistoryPage, Task, TaskDetails, get_history, get_task
from holdfast.core import limits
from holdfast.core.model import FailureStage, Phase, ReasonCode, Status
from holdfast.server import bodies as b
from holdfast.server.call import Call, claimable_queues, visible_related
from holdfast.server.routes import route
from holdfast.shapes import answer_shape

HeldTaskAnswer = answer_shape("HeldTaskAnswer", task=Task)
TasksAnswer = answer_shape("TasksAnswer", tasks=list[Task], next_after=int | None)


class TasksQuery(b.Body, frozen=True):
    mine: bool = False
    status: list[Status] | None = None
    phase: list[Phase] | None = None
    queue: str | None = None
    kind: str | None = None
    after: int = 0
    limit: int = 100


class StartBody(b.Body, frozen=True):
    ttl: b.Duration | None = None
    attempt: int | None = None
    labels: tuple[str, ...] = ()
    """What the agent has, for a task that requires labels."""


class TaskBeatBody(b.Body, frozen=True):
    stage: str | None = None
    progress: int | None = None
    checkpoint: msgspec.Raw = msgspec.field(default_factory=b.absent)
    attempt: int | None = None


class TaskCompleteBody(b.Body, frozen=True):
    result: msgspec.Raw = msgspec.field(default_factory=b.absent)
    attempt: int | None = None


class TaskFailBody(b.Body, frozen=True):
    error: msgspec.Raw
    retryable: bool = True
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    retry_after: b.Duration | None = None
    attempt: int | None = None


class TaskReleaseBody(b.Body, frozen=True):
    reason: str | None = None
    attempt: int | None = None


class ResumeTaskBody(b.Body, frozen=True):
    queues: list[str] | None = None
    kinds: list[str] | None = None
    ttl: b.Duration | None = None
    labels: tuple[str, ...] = ()
    """What the agent has, for tasks that require labels."""


class CollectBody(b.Body, frozen=True):
    limit: int = limits.PAGE_MAX


def _agent(call: Call, labels: Sequence[str] = ()) -> Agent:
    worker = call.worker
    return Agent(call.ledger, worker.name, session=worker.incarnation, labels=labels)


@route("GET", "/v1/tasks", "reader", query=TasksQuery, answer=TasksAnswer, verb="read")
def tasks(call: Call) -> Any:
    """List tasks. With `mine`, those that the caller holds."""
    given = msgspec.structs.asdict(call.query)
    agent = Agent(call.ledger, call.principal.name, session=call.incarnation)
    found = agent.list(**given)
    shown = [task for task in found if call.principal.sees(task.queue)]
    return {"tasks": shown, "next_after": found[-1].id if len(found) == call.query.limit else None}


class TaskQuery(b.Body, frozen=True):
    bytes_max: int | None = None
    """A longer content is left out, and `omitted` has its length."""


@route("GET", "/v1/tasks/{job_id}", "reader", query=TaskQuery, answer=TaskDetails, verb="read")
def task(call: Call) -> Any:
    """Return a task with its details."""
    found = get_task(call.ledger, call.check_visible(), bytes_max=call.query.bytes_max)
    return visible_related(call.principal, call.ledger, found)


@route("GET", "/v1/tasks/{job_id}/history", "reader", query=b.PageQuery, answer=HistoryPage, verb="read")
def task_history(call: Call) -> Any:
    """Return the events of a task."""
    return get_history(call.ledger, call.check_visible(), after=call.query.after, limit=call.query.limit)


@route("POST", "/v1/tasks/resume", "worker", body=ResumeTaskBody, answer=Brief, verb="task_resume")
def task_resume(call: Call) -> Any:
    """Continue the agent's task or claim the next one, and return a brief of it."""
    body = call.body
    for queue in body.queues or ():
        call.see_queue(queue)
    queues = claimable_queues(call.principal, call.ledger) if body.queues is None else body.queues
    brief = _agent(call, body.labels).resume(queues=queues, kinds=body.kinds, ttl=body.ttl, request_id=call.request_id)
    return visible_related(call.principal, call.ledger, brief)


@route("POST", "/v1/tasks/gc", "worker", body=CollectBody, answer=Collected, verb="task_gc")
def task_gc(call: Call) -> Any:
    """Release the expired claims of all agents."""
    return _agent(call).gc(limit=call.body.limit, request_id=call.request_id)


@route("POST", "/v1/tasks/{job_id}/start", "worker", body=StartBody, answer=HeldTaskAnswer, verb="task_start")
def task_start(call: Call) -> Any:
    """Claim and start a task, and make it the focus."""
    body, agent = call.body, _agent(call, call.body.labels)
    return {"task": agent.start(call.check_visible(), ttl=body.ttl, attempt=body.attempt, request_id=call.request_id)}


@route(
    "POST", "/v1/tasks/{job_id}/heartbeat", "worker", body=TaskBeatBody, answer=HeldTaskAnswer, pool="beat", verb="task_heartbeat"
)
def task_heartbeat(call: Call) -> Any:
    """Renew the claim on a task, and record progress."""
    fields = msgspec.structs.asdict(call.body)
    if fields["checkpoint"] == b.ABSENT:
        del fields["checkpoint"]
    return {"task": _agent(call).heartbeat(call.check_visible(), **fields, request_id=call.request_id)}


@route("POST", "/v1/tasks/{job_id}/complete", "worker", body=TaskCompleteBody, answer=HeldTaskAnswer, verb="task_complete")
def task_complete(call: Call) -> Any:
    """Complete a task with its result."""
    body, agent = call.body, _agent(call)
    done = agent.complete(call.check_visible(), b.sent(body.result), attempt=body.attempt, request_id=call.request_id)
    return {"task": done}


@route("POST", "/v1/tasks/{job_id}/fail", "worker", body=TaskFailBody, answer=HeldTaskAnswer, verb="task_fail")
def task_fail(call: Call) -> Any:
    """Fail the attempt at a task."""
    fields = msgspec.structs.asdict(call.body) | {"error": b.error_sent(call.body.error)}
    return {"task": _agent(call).fail(call.check_visible(), **fields, request_id=call.request_id)}


@route("POST", "/v1/tasks/{job_id}/release", "worker", body=TaskReleaseBody, answer=HeldTaskAnswer, verb="task_release")
def task_release(call: Call) -> Any:
    """Hand a task back."""
    return {"task": _agent(call).release(call.check_visible(), **msgspec.structs.asdict(call.body), request_id=call.request_id)}
