"""Routes on queues, workers and duties, and on the upkeep of the ledger."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.access import AccessRole
from holdfast.core.model import Role
from holdfast.errors import Forbidden, NotFound
from holdfast.ledger import QueueRecord, WorkerRecord
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.shapes import answer_shape

# Queues


@route("GET", "/v1/queues", "reader", answer=b.QueuesAnswer, verb="read")
def queues(call: Call) -> Any:
    """List every queue that has jobs or is paused."""
    return {"queues": [queue for queue in call.ledger.queues() if call.principal.sees(queue.name)]}


@route("GET", "/v1/queues/{name}", "reader", answer=QueueRecord, verb="read")
def queue(call: Call) -> Any:
    """Return one queue."""
    name = call.parameters["name"]
    if call.principal.sees(name):
        for found in call.ledger.queues():
            if found.name == name:
                return found
    raise NotFound(f"there is no queue {name!r:.80} with jobs, and none that is paused", queue=name)


@route("POST", "/v1/queues/{name}/pause", "operator", body=b.ReasonBody, answer=b.QueueStateAnswer)
def pause(call: Call) -> Any:
    """Let no job be claimed from a queue."""
    name = call.parameters["name"]
    call.see_queue(name)
    call.ledger.pause(name, reason=call.body.reason, request_id=call.request_id, actor=call.actor)
    return {"name": name, "paused": True}


@route("POST", "/v1/queues/{name}/unpause", "operator", body=Nothing, answer=b.QueueStateAnswer)
def unpause(call: Call) -> Any:
    """Let jobs be claimed from a paused queue again."""
    name = call.parameters["name"]
    call.see_queue(name)
    call.ledger.unpause(name, request_id=call.request_id, actor=call.actor)
    return {"name": name, "paused": False}


@route("GET", "/v1/counts", "reader", answer=b.CountsAnswer, verb="read")
def counts(call: Call) -> Any:
    """Return the number of jobs by queue and status."""
    found = call.ledger.counts()
    return {"counts": {name: by_status for name, by_status in found.items() if call.principal.sees(name)}}


# Workers


class WorkersQuery(b.Body, frozen=True):
    seen_within: str | None = None
    limit: int = 1_000


WorkersAnswer = answer_shape("WorkersAnswer", workers=list[WorkerRecord], now=datetime)


@route("GET", "/v1/workers", "reader", query=WorkersQuery, answer=WorkersAnswer, verb="read")
def workers(call: Call) -> Any:
    """List the workers that have signed in."""
    found = call.ledger.workers(seen_within=call.query.seen_within, limit=call.query.limit)
    return {"workers": [worker for worker in found if _sees_worker(call, worker)], "now": call.ledger.now()}


def _sees_worker(call: Call, worker: WorkerRecord) -> bool:
    """Return whether the caller may see a worker: one of its queues, or itself."""
    queues = worker.details.get("queues")
    named = queues if isinstance(queues, list) else []
    return (
        call.principal.sees_all
        or worker.name == call.principal.name
        or any(isinstance(name, str) and call.principal.sees(name) for name in named)
    )


def _own_name(call: Call) -> str:
    worker, name = call.worker, call.parameters["name"]
    if worker.name != name:
        raise Forbidden(f"worker {worker.name} cannot do this for {name!r:.80}")
    return name


class SignInQuery(b.Body, frozen=True):
    keep: bool = False
    """Keep the last description of the worker. The body is ignored."""


@route("PUT", "/v1/workers/{name}", "worker", body=dict, query=SignInQuery, answer=Nothing, pool="beat", verb="sign-in")
def sign_in(call: Call) -> Any:
    """Sign in as a worker, or describe it anew."""
    body = None if call.query.keep else call.body
    call.ledger.sign_in(_own_name(call), incarnation=call.worker.incarnation, body=body)
    return {}


@route("DELETE", "/v1/workers/{name}", "worker", answer=None, status=204, verb="sign-in")
def sign_out(call: Call) -> Any:
    """Sign out."""
    call.ledger.sign_out(_own_name(call), call.worker.incarnation)


class UntilReadyQuery(b.Body, frozen=True):
    queues: list[str]
    kinds: list[str] | None = None
    worker: str | None = None
    """The worker that claims. Without a name, the one that calls."""
    labels: list[str] | None = None


class UntilReadyAnswer(msgspec.Struct, frozen=True):
    seconds: float | None
    """Null if no job will become ready by itself."""


@route("GET", "/v1/until-ready", "worker", query=UntilReadyQuery, answer=UntilReadyAnswer, verb="claim")
def until_ready(call: Call) -> Any:
    """Return how long it takes until a job of these queues is ready."""
    asked = call.query
    found = call.ledger.until_ready(_visible_queues(call), kinds=asked.kinds, worker=_claimer(call), labels=asked.labels or ())
    return {"seconds": found}


def _claimer(call: Call) -> str | None:
    """Return the worker of the query, else the one that calls. Raise Forbidden if the caller may not act as that worker."""
    named, caller = call.query.worker, call.principal
    if named is None:
        return caller.name if caller.role is AccessRole.WORKER else None
    if not caller.may_act_as(Role.WORKER, named):
        raise Forbidden(f"this token may not act as worker {named!r:.80}", allowed=list(caller.act_as))
    return str(named)


def _visible_queues(call: Call) -> list[str]:
    """Return the queues of the query. Raise Forbidden if the caller may not use one of them."""
    for queue in call.query.queues:
        call.see_queue(queue)
    return call.query.queues  # type: ignore[no-any-return]


class WakeQuery(b.Body, frozen=True):
    wait_s: float = 25.0
    after: str | None = None
    """The `change` of an earlier answer. If the ledger has changed since, the answer comes at once."""


class WakeAnswer(msgspec.Struct, frozen=True):
    woken: bool
    change: str
    """Names the newest change that this server knows."""


@route("GET", "/v1/wake", "worker", query=WakeQuery, answer=WakeAnswer, verb="claim", awaits=True)
async def wake(call: Call) -> Any:
    """Wait until the ledger has changed, or the time is up."""
    claims = call.server.claims
    woken = call.query.after not in (None, claims.change) or await claims.wait_for_change(call.query.wait_s)
    return {"woken": woken, "change": claims.change}


# Duties and upkeep


class DutyBody(b.Body, frozen=True):
    holder: str
    ttl: b.Duration = 30.0


class DutyQuery(b.Body, frozen=True):
    holder: str


class WantedBody(b.Body, frozen=True):
    holder: str


WantedAnswer = answer_shape("WantedAnswer", wanted=bool)


@route("PUT", "/v1/duties/{name}", "admin", body=DutyBody, answer=answer_shape("DutyAnswer", taken=bool), verb="duties")
def take_duty(call: Call) -> Any:
    """Take or renew a duty."""
    return {"taken": call.ledger.take_duty(call.parameters["name"], call.body.holder, ttl=call.body.ttl)}


@route("DELETE", "/v1/duties/{name}", "admin", query=DutyQuery, answer=None, status=204, verb="duties")
def drop_duty(call: Call) -> Any:
    """Give up a duty."""
    call.ledger.drop_duty(call.parameters["name"], call.query.holder)


@route("POST", "/v1/duties/sweep/wanted", "worker", body=WantedBody, answer=WantedAnswer, verb="claim")
def wants_sweeping(call: Call) -> Any:
    """Return whether the caller should sweep, and note that it asked. Only an admin can take the duty."""
    return {"wanted": call.principal.may("admin") and call.ledger.wants_sweeping(call.body.holder)}


class SweepBody(b.Body, frozen=True):
    limit: int = 1_000


@route("POST", "/v1/sweep", "operator", body=SweepBody, answer=answer_shape("EventCounts", events=dict[str, int]))
def sweep(call: Call) -> Any:
    """Do what is due: stalls, requeues and resumes."""
    return {"events": call.ledger.sweep(limit=call.body.limit)}


class PruneBody(b.Body, frozen=True):
    jobs_before: datetime | None = None
    failed_before: datetime | None = None
    beats_before: datetime | None = None
    requests_before: datetime | None = None
    workers_before: datetime | None = None
    agents_before: datetime | None = None
    sessions_before: datetime | None = None
    subqueues_before: datetime | None = None
    batch: int = 1_000


@route("POST", "/v1/prune", "admin", body=PruneBody, answer=answer_shape("DeletedCounts", deleted=dict[str, int]))
def prune(call: Call) -> Any:
    """Delete old records in one bounded step."""
    return {"deleted": call.ledger.prune(**msgspec.structs.asdict(call.body))}
