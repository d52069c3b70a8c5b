"""Routes that sum up the ledger for dashboards, and verbs on many chosen jobs.

A caller that may see only some queues gets what the ledger can tell about those alone.
"""

from collections import Counter, defaultdict
from datetime import datetime
from functools import partial
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core.model import FailureStage, ReasonCode
from holdfast.errors import Forbidden, HoldfastError, NotFound
from holdfast.ledger import Job
from holdfast.ledger.charts import JobTotal, JobTotals, LedgerHistory, Times
from holdfast.ledger.overview import AgentSession, AttentionItem, KindRecord, Overview, count_waiting
from holdfast.ledger.verbs.letters import LetterGroups, letter_groups_to
from holdfast.ledger.verbs.on_jobs import VerbOnJobs
from holdfast.ledger.verbs.timeline import JobGraph
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.problems import Problem, problem
from holdfast.server.routes import route
from holdfast.shapes import JobView, answer_shape
from holdfast.watch.timeline.model import Timeline

OVERVIEW_SECONDS = 1.0
"""An overview is made at most this often, for all viewers together."""
WIDTH = 1_200
_NO_TIMES = Times(0, None, None)


@route("GET", "/v1/overview", "reader", answer=Overview, verb="read")
def overview(call: Call) -> Any:
    """Return everything that the first page of a dashboard shows."""
    found = call.server.metrics.overview(OVERVIEW_SECONDS)
    return found if call.principal.sees_all else _part_of(call, found)


def _part_of(call: Call, found: Overview) -> Overview:
    """Return an overview of the queues that the caller may see. Numbers that are only known for all queues are left out."""
    sees = call.principal.sees
    counts = _statuses([row for row in call.ledger.job_totals().rows if sees(row.queue)])
    return msgspec.structs.replace(
        found,
        counts=counts,
        rates=None,
        failed_24h=None,
        stalled=counts.get("stalled", 0),
        dead_letters=sum(queue.dead_letters for queue in call.ledger.queues() if sees(queue.name)),
        oldest=[one for one in found.oldest if sees(one.queue)],
        queues=[one for one in found.queues if sees(one.name)],
        attention=count_waiting(_attention(call)),
        findings=[],
    )


@route("GET", "/v1/totals", "reader", answer=JobTotals, verb="read")
def job_totals(call: Call) -> Any:
    """Return the number of jobs by queue, kind and status, with every change that was committed before."""
    found = call.ledger.job_totals()
    if call.principal.sees_all:
        return found
    rows = [row for row in found.rows if call.principal.sees(row.queue)]
    return msgspec.structs.replace(found, rows=rows, statuses=_statuses(rows))


def _statuses(rows: list[JobTotal]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.status.value] += row.n
    return dict(counts)


class HistoryQuery(b.Body, frozen=True):
    metric: str = "throughput"
    queue: str | None = None
    kind: str | None = None
    since: datetime | None = msgspec.field(default=None, name="from")
    until: datetime | None = msgspec.field(default=None, name="to")
    step: b.Duration | None = None


@route("GET", "/v1/history", "reader", query=HistoryQuery, answer=LedgerHistory, verb="read")
def history(call: Call) -> Any:
    """Return what happened over time, to all jobs or to those of one queue or kind."""
    call.check_scope(call.query.queue)
    return call.ledger.history(**msgspec.structs.asdict(call.query))


@route("GET", "/v1/kinds", "reader", answer=answer_shape("KindsAnswer", kinds=list[KindRecord]), verb="read")
def kinds(call: Call) -> Any:
    """List every kind that has jobs, with its last hour."""
    found = call.ledger.kinds()
    return {"kinds": found if call.principal.sees_all else _visible_kinds(call, found)}


def _visible_kinds(call: Call, found: list[KindRecord]) -> list[KindRecord]:
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in call.ledger.job_totals().rows:
        if call.principal.sees(row.queue):
            counts[row.kind][row.status] += row.n
    groups = letter_groups_to(call.ledger, "kind", None, None, letters=False, sees=call.principal.sees).groups
    letters = {group.key["kind"]: group.n for group in groups}
    hidden: dict[str, Any] = {"last_hour": {}, "errors": [], "wait": _NO_TIMES, "run": _NO_TIMES, "rates": None}
    return [
        msgspec.structs.replace(one, counts=dict(counts[one.kind]), dead_letters=letters.get(one.kind, 0), **hidden)
        for one in found
        if one.kind in counts
    ]


AttentionAnswer = answer_shape("AttentionAnswer", attention=list[AttentionItem])


class AttentionQuery(b.Body, frozen=True):
    limit: int = limits.ATTENTION_MAX


@route("GET", "/v1/attention", "reader", query=AttentionQuery, answer=AttentionAnswer, verb="read")
def attention(call: Call) -> Any:
    """List what waits for a person, oldest first."""
    return {"attention": _attention(call, call.query.limit)}


def _attention(call: Call, limit: int = limits.ATTENTION_MAX) -> list[AttentionItem]:
    who, found = call.principal, call.ledger.attention(limit=limit)
    return [one for one in found if who.sees_all or (one.queue is not None and who.sees(one.queue))]


@route("GET", "/v1/agents", "reader", answer=answer_shape("AgentsAnswer", agents=list[AgentSession]), verb="read")
def agents(call: Call) -> Any:
    """List the sessions of agents, the most recently active first."""
    return {"agents": call.ledger.agents() if call.principal.sees_all else []}


class GroupsQuery(b.Body, frozen=True):
    by: str = "cause"
    """Names of fields, separated by commas."""
    queue: str | None = None
    kind: str | None = None
    letters: bool = False
    """Whether each group has its letters."""


@route("GET", "/v1/dead-letters/groups", "reader", query=GroupsQuery, answer=LetterGroups, verb="read")
def dead_letter_groups(call: Call) -> Any:
    """Group the dead letters that are neither discarded nor replayed by their cause."""
    query = call.query
    if call.redaction is not None and ("error_text" in query.by or "cause" in query.by):
        raise Forbidden("errors are hidden from this role", action="Group by reason_code, failure_stage, kind or queue.")
    return letter_groups_to(call.ledger, query.by, query.queue, query.kind, letters=query.letters, sees=call.principal.sees)


# One job


class TimelineQuery(b.Body, frozen=True):
    since: datetime | None = msgspec.field(default=None, name="from")
    until: datetime | None = msgspec.field(default=None, name="to")
    width: int = WIDTH


@route("GET", "/v1/jobs/{job_id}/timeline", "reader", query=TimelineQuery, answer=Timeline, verb="read")
def timeline(call: Call) -> Any:
    """Return what a drawing of a job's history needs."""
    return call.ledger.timeline(call.check_visible(), **msgspec.structs.asdict(call.query))


class GraphQuery(b.Body, frozen=True):
    depth: int = 3


@route("GET", "/v1/jobs/{job_id}/graph", "reader", query=GraphQuery, answer=JobGraph, verb="read")
def graph(call: Call) -> Any:
    """Return the jobs that a job waits for, and those that wait for it."""
    found = call.ledger.graph(call.check_visible(), depth=call.query.depth)
    nodes = [node for node in found.nodes if call.principal.sees(node.queue)]
    if len(nodes) == len(found.nodes):
        return found
    shown = {node.job_id for node in nodes}
    edges = [edge for edge in found.edges if edge.on_id in shown and edge.job_id in shown]
    return msgspec.structs.replace(found, nodes=nodes, edges=edges)


# Verbs on many jobs


class ChosenBody(b.Body, frozen=True):
    id: int
    rev: int | None = None
    """The revision at which the job was seen. A job that has changed since is skipped."""


class BatchBody(b.Body, frozen=True):
    """A verb, the jobs, and the options of the verb."""

    verb: VerbOnJobs
    jobs: list[ChosenBody]
    reason: str | msgspec.UnsetType | None = msgspec.UNSET
    hard: bool | msgspec.UnsetType = msgspec.UNSET
    again: bool | msgspec.UnsetType = msgspec.UNSET
    """Replay jobs that were replayed before, too."""
    reason_code: ReasonCode | msgspec.UnsetType = msgspec.UNSET
    failure_stage: FailureStage | msgspec.UnsetType | None = msgspec.UNSET
    error: msgspec.Raw = msgspec.field(default_factory=b.absent)
    queue: str | msgspec.UnsetType = msgspec.UNSET
    for_worker: str | msgspec.UnsetType | None = msgspec.UNSET
    """Move jobs to this worker, or with null to any."""
    priority: int | msgspec.UnsetType = msgspec.UNSET
    available_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    delay: b.Duration | msgspec.UnsetType | None = msgspec.UNSET


class BatchQuery(b.Body, frozen=True):
    return_: Literal["brief", "jobs"] = msgspec.field(default="brief", name="return")


class ManyAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job after the change, and its replay's id if it was replayed; or why it was not changed."""

    job_id: int
    rev: int | None = None
    status: str | None = None
    replay_id: int | None = None
    is_new: bool | None = None
    job: JobView | None = None
    """With `return=jobs`: the whole job, or its replay."""
    problem: Problem | None = None


BatchAnswer = answer_shape("BatchAnswer", answers=list[ManyAnswer])


def _options(body: BatchBody) -> dict[str, Any]:
    """Return the options that were sent."""
    found = {name: getattr(body, name) for name in BatchBody.__struct_fields__ if name not in ("verb", "jobs", "error")}
    error = {} if body.error is b.ABSENT else {"error": b.error_sent(body.error)}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET} | error


def _unseen(call: Call) -> dict[int, Job | HoldfastError]:
    refused: dict[int, Job | HoldfastError] = {}
    for one in call.body.jobs:
        try:
            call.visible_job(one.id)
        except NotFound as error:
            refused[one.id] = error
    return refused


def _item(job_id: int, answer: Job | HoldfastError) -> ManyAnswer:
    if isinstance(answer, HoldfastError):
        return ManyAnswer(job_id, problem=problem(answer))
    if answer.id != job_id:
        return ManyAnswer(job_id, replay_id=answer.id, is_new=answer.is_new)
    return ManyAnswer(job_id, rev=answer.rev, status=answer.status.value)


def _whole_item(call: Call, job_id: int, answer: Job | HoldfastError) -> ManyAnswer:
    brief = _item(job_id, answer)
    return brief if isinstance(answer, HoldfastError) else msgspec.structs.replace(brief, job=call.view(answer))


@route("POST", "/v1/batches", "client", body=BatchBody, query=BatchQuery, answer=BatchAnswer)
def on_jobs(call: Call) -> Any:
    """Use one verb on many jobs, each at the revision at which it was seen. Each has its own answer."""
    verb, jobs = call.body.verb, call.body.jobs
    if verb != "cancel":
        call.principal.check_role("operator", verb, f"{verb} many jobs")
    limits.check_count("jobs", len(jobs), limits.BULK_MAX)
    options = _options(call.body)
    if "queue" in options:
        call.see_queue(options["queue"])
    # The system requeues. A name stands for the system on behalf of the caller.
    actor = call.actor.name if verb == "requeue" else call.actor
    # A job that the caller may not see is one that does not exist.
    refused = {} if call.principal.sees_all else _unseen(call)
    chosen = [(one.id, one.rev) for one in jobs if one.id not in refused]
    changed = call.ledger.on_jobs(verb, chosen, request_id=call.request_id, actor=actor, **options)
    answers = refused | dict(zip([id_ for id_, _ in chosen], changed, strict=True))
    item = partial(_whole_item, call) if call.query.return_ == "jobs" else _item
    return {"answers": [item(one.id, answers[one.id]) for one in jobs]}
