"""Routes on jobs: enqueue, read, and what clients and operators do with one."""

from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.core.formatting import format_error
from holdfast.core.model import TERMINAL, EventType
from holdfast.errors import NotFound, ValidationError
from holdfast.ledger import Event, Job
from holdfast.ledger.verbs.explaining import explain_to
from holdfast.ledger.verbs.jobs import EnqueueCall, EnqueuedJob
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.routes import route
from holdfast.shapes import DeadLetterAnswer, EnqueueAnswer, EventPageAnswer, JobView, dead_letter_details, dead_letter_fields

ERROR_CHARACTERS_MAX = 200
"""How much of an error a brief list shows."""


def _item(call: Call, given: Any) -> dict[str, Any]:
    """Return a job to enqueue as the ledger takes it."""
    call.see_queue(given.queue)
    fields = {"kind": given.kind, "args": b.checked(given.args), "queue": given.queue}
    names, values = _OPTIONS[type(given)]
    options = values(given)
    if options.count(None) < len(options):
        call.see_dependencies(given.depends_on)
        call.see_group(given.group)
        fields |= {name: value for name, value in zip(names, options, strict=True) if value is not None}
    return fields


def _options_of(body: type[b.EnqueueBody]) -> tuple[list[str], Any]:
    names = [name for name in body.__struct_fields__ if name not in ("kind", "args", "queue")]
    return names, attrgetter(*names)


_OPTIONS = {body: _options_of(body) for body in (b.EnqueueBody, b.EnqueueItem)}
"""The names of the options of a job to enqueue, and a function that returns their values."""


@route("POST", "/v1/jobs", "client_or_worker", body=b.EnqueueBody, answer=EnqueueAnswer, status=201, awaits=True)
async def enqueue(call: Call) -> Reply:
    """Create a job, or find the one that has the dedupe key."""
    body = call.body
    if body.dedupe_key is None and not body.depends_on and not call.is_traced:
        given = EnqueueCall(_item(call, body), call.request_id, call.actor)
        reply: Reply | None = await call.server.lone_enqueues.enqueue(given, partial(_created, call))
        if reply is not None:
            return reply
    created: Reply = await call.server.write(call, partial(_enqueue_alone, call))
    return created


def _created(call: Call, found: EnqueuedJob) -> Reply:
    call.is_repeated = found.is_repeated
    return _new_job(call, found.job)


def _enqueue_alone(call: Call) -> Reply:
    [job] = call.ledger.enqueue_many([_item(call, call.body)], request_id=call.request_id, actor=call.actor)
    return _new_job(call, job)


def _new_job(call: Call, job: Job) -> Reply:
    headers = {"ETag": f'"{job.rev}"', "Location": f"/v1/jobs/{job.id}"}
    return Reply({"job": call.view(job), "is_new": job.is_new}, 201 if job.is_new else 200, headers)


@route(
    "POST",
    "/v1/jobs/batch",
    "client_or_worker",
    body=b.EnqueueManyBody,
    query=b.EnqueueManyQuery,
    answer=b.EnqueuedAnswer,
    status=201,
    body_bytes_max=limits.HTTP_BATCH_BYTES_MAX,
)
def enqueue_many(call: Call) -> Any:
    """Create many jobs, all of them or none."""
    items = [_item(call, item) for item in call.body.jobs]
    jobs = call.ledger.enqueue_many(items, request_id=call.request_id, actor=call.actor)
    new = [job for job in jobs if job.is_new]
    existing = [place for place, job in enumerate(jobs) if not job.is_new]
    if call.query.return_ == "jobs":
        limits.check_count("return=jobs", len(jobs), limits.PAGE_MAX)
        return {"jobs": [call.view(job) for job in jobs], "existing": existing}
    at = new[0].created_at if new else None
    return {"job_ids": [job.id for job in jobs], "new": len(new), "existing": existing, "at": at}


@route("GET", "/v1/jobs", "reader", query=b.ListQuery, answer=b.JobPageAnswer, verb="read")
def list_jobs(call: Call) -> Any:
    """List jobs, page by page."""
    call.check_search(call.query.text)
    given = msgspec.structs.asdict(call.query)
    brief, why = given.pop("fields") == "brief", given.pop("why")
    page = call.ledger.list(**given)
    views = [call.view(job) for job in page if call.principal.sees(job.queue)]
    if brief:
        views = [_brief(view) for view in views]
    more: dict[str, Any] = {"searched": page.searched, "stopped": page.stopped}
    if why:
        more["why"] = call.waits(views)
    return {"jobs": views, "next_after": page.next_after, "next_cursor": page.next_cursor, **more}


def _brief(view: JobView) -> JobView:
    """Leave out what may be large. Of an error, one line stays."""
    raw, letter = view.last_error, view.dead_letter
    error = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    line = None if error is None else format_error(error, ERROR_CHARACTERS_MAX)
    letter = None if letter is None else msgspec.structs.replace(letter, last_error=line)
    empty = dict.fromkeys(("args", "result", "checkpoint", "error"))
    return msgspec.structs.replace(view, last_error=line, dead_letter=letter, **empty)


@route("GET", "/v1/jobs/{job_id}", "reader", query=b.GetQuery, answer=b.JobOnly, verb="read", awaits=True)
async def get(call: Call) -> Reply:
    """Return a job, with `wait` after its end or that many seconds."""
    job = await call.server.read(call.visible_job)
    if call.query.wait and job.status not in TERMINAL:
        job = await call.server.wait_for_end(job, min(call.query.wait, limits.HTTP_WAIT_SECONDS_MAX))
    return call.changed(job)


@route("GET", "/v1/jobs/{job_id}/explain", "reader", query=b.ExplainQuery, answer=Explanation, verb="read")
def explain(call: Call) -> Any:
    """Say in words what a job waits for, and what happens next."""
    hides_keys = call.redaction is not None and call.redaction.hides_keys
    job_id = call.check_visible()
    return explain_to(call.ledger, job_id, to_claim=call.query.to_claim, sees=call.principal.sees, hides_keys=hides_keys)


@route("GET", "/v1/jobs/{job_id}/policy", "reader", answer=b.JobPolicyAnswer, verb="read")
def policy_of(call: Call) -> Any:
    """Return the policy that the job's next attempt would have."""
    return {"policy": call.ledger.policy_of(call.check_visible())}


@route("GET", "/v1/jobs/{job_id}/events", "reader", query=b.EventsQuery, answer=EventPageAnswer, verb="read")
def events_of(call: Call) -> Any:
    """Return the events of a job, by position."""
    return _events(call, call.check_visible())


@route("GET", "/v1/events", "reader", query=b.EventsQuery, answer=EventPageAnswer, verb="read")
def events(call: Call) -> Any:
    """Return the events of the ledger, by position."""
    return _events(call, None)


def _events(call: Call, job_id: int | None) -> Any:
    given = msgspec.structs.asdict(call.query)
    types = given.pop("types")
    if given.pop("stable"):
        others = (job_id, types, given["since"], given["until"], given["correlation_id"])
        if any(one is not None for one in others):
            raise ValidationError("stable events are read without other filters", field="stable")
        found = call.ledger.stable_events(given["after"], limit=given["limit"])
    else:
        given["types"] = None if types is None else types.split(",")
        found = call.ledger.events(job_id, **given)
    after = found[-1].pos if len(found) == call.query.limit else None
    if job_id is None:
        found = _visible_events(call, found)
    return {"events": found, "next_after": after}


def _visible_events(call: Call, found: list[Event]) -> list[Event]:
    """Return the events of jobs that the caller may see."""
    if call.principal.sees_all:
        return found
    origins = call.server.origins(sorted({event.job_id for event in found}))
    return [event for event in found if event.job_id in origins and call.principal.sees(origins[event.job_id][0])]


@route("GET", "/v1/jobs/{job_id}/dependents", "reader", query=b.PageQuery, answer=b.JobPageAnswer, verb="read")
def dependents(call: Call) -> Any:
    """List the jobs that wait for a job."""
    found = call.ledger.dependents(call.check_visible(), after=call.query.after, limit=call.query.limit)
    after = found[-1].id if len(found) == call.query.limit else None
    shown = [call.view(job) for job in found if call.principal.sees(job.queue)]
    return {"jobs": shown, "next_after": after, "next_cursor": None}


@route("GET", "/v1/jobs/{job_id}/undo-steps", "reader", answer=b.UndoStepsAnswer, verb="read")
def undo_steps(call: Call) -> Any:
    """Return the registered undo steps of a job."""
    return {"steps": call.ledger.undo_steps(call.check_visible())}


@route("GET", "/v1/jobs/{job_id}/check", "reader", answer=b.ViolationsAnswer, verb="read")
def check(call: Call) -> Any:
    """Check a job's history against the rules."""
    return {"violations": call.ledger.check(call.check_visible())}


# What clients and operators do with a job


def _options(call: Call, **more: Any) -> dict[str, Any]:
    return {"request_id": call.request_id, "actor": call.actor, "expected_rev": call.expected_rev} | more


@route("POST", "/v1/jobs/{job_id}/cancel", "client", body=b.CancelBody, answer=b.CancelledAnswer)
def cancel(call: Call) -> Reply:
    """Cancel a job: at once if no worker holds it or with `hard`, else ask its holder to stop."""
    job = call.ledger.cancel(call.check_visible(), **_options(call, hard=call.body.hard, reason=call.body.reason))
    return Reply({"job": call.view(job), "is_over": job.status in TERMINAL}, headers={"ETag": f'"{job.rev}"'})


@route("POST", "/v1/jobs/{job_id}/requeue", "operator", body=b.ReasonBody, answer=b.JobOnly)
def requeue(call: Call) -> Reply:
    """Queue a stalled job again."""
    # The system requeues. A name stands for the system on behalf of the caller.
    return call.changed(
        call.ledger.requeue(call.check_visible(), **_options(call, reason=call.body.reason, actor=call.actor.name))
    )


@route("POST", "/v1/jobs/{job_id}/assist", "operator", body=b.ReasonBody, answer=b.JobOnly)
def assist(call: Call) -> Reply:
    """Record that an operator assists the job's holder."""
    return call.changed(call.ledger.assist(call.check_visible(), **_options(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/unassist", "operator", body=b.ReasonBody, answer=b.JobOnly)
def unassist(call: Call) -> Reply:
    """Record that the operator's assistance has ended."""
    return call.changed(call.ledger.unassist(call.check_visible(), **_options(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/dead-letter", "operator", body=b.DeadLetterBody, answer=b.JobOnly)
def dead_letter(call: Call) -> Reply:
    """Move a job to the dead letters."""
    body = call.body
    more = {"reason_code": body.reason_code, "failure_stage": body.failure_stage, "error": b.error_sent(body.error)}
    return call.changed(call.ledger.dead_letter(call.check_visible(), **_options(call, **more)))


@route("POST", "/v1/jobs/{job_id}/replay", "operator", body=b.ReasonBody, answer=b.ReplayedAnswer, status=201)
def replay(call: Call) -> Reply:
    """Create a job that repeats a failed, cancelled or dead-lettered one."""
    return _new_job(call, call.ledger.replay(call.check_visible(), **_options(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/discard", "operator", body=b.ReasonBody, answer=b.JobOnly)
def discard(call: Call) -> Reply:
    """Note that a failed or dead-lettered job needs no further action."""
    return call.changed(call.ledger.discard(call.check_visible(), **_options(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/compensate", "operator", body=b.CompensateBody, answer=b.JobOnly)
def compensate(call: Call) -> Reply:
    """Note whether the effects of a job were undone."""
    return call.changed(call.ledger.annotate(call.check_visible(), call.body.outcome, **_options(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/move", "operator", body=b.MoveBody, answer=b.JobOnly)
def move(call: Call) -> Reply:
    """Move a queued job to another queue, to another worker, or to any worker."""
    body = call.body
    if body.queue is not None:
        call.see_queue(body.queue)
    options = _options(call, for_worker=body.for_worker, reason=body.reason)
    return call.changed(call.ledger.move(call.check_visible(), body.queue, **options))


@route("POST", "/v1/jobs/{job_id}/reprioritise", "operator", body=b.ReprioritiseBody, answer=b.JobOnly)
def reprioritise(call: Call) -> Reply:
    """Change the priority of a queued job."""
    body = call.body
    return call.changed(call.ledger.reprioritise(call.check_visible(), body.priority, **_options(call, reason=body.reason)))


@route("POST", "/v1/jobs/{job_id}/reschedule", "operator", body=b.RescheduleBody, answer=b.JobOnly)
def reschedule(call: Call) -> Reply:
    """Change when a queued job becomes available."""
    given = msgspec.structs.asdict(call.body)
    return call.changed(call.ledger.reschedule(call.check_visible(), **_options(call, **given)))


# Dead letters


@route("GET", "/v1/dead-letters", "reader", query=b.DeadLettersQuery, answer=b.DeadLettersAnswer, verb="read")
def dead_letters(call: Call) -> Any:
    """List dead letters, each with its newest replay."""
    given = msgspec.structs.asdict(call.query)
    wanted = given.pop("return_")
    found = call.ledger.dead_letters(**given)
    after = found[-1].id if len(found) == call.query.limit else None
    shown = [job for job in found if call.principal.sees(job.queue)]
    if wanted == "jobs":
        return {"jobs": [call.view(job) for job in shown], "next_after": after}
    replays = call.ledger.newest_replays(job.id for job in shown)
    return {"dead_letters": [dead_letter_fields(job, replays.get(job.id)) for job in shown], "next_after": after}


@route("GET", "/v1/dead-letters/{job_id}", "reader", answer=DeadLetterAnswer, verb="read")
def dead_letter_in_full(call: Call) -> Any:
    """Return a dead letter with its history and its replays."""
    job = call.visible_job()
    if job.dead_letter is None:
        raise NotFound(f"job {job.id} is not a dead letter", job_id=job.id, status=job.status.value)
    types = [kind.value for kind in EventType if kind is not EventType.HEARTBEAT]
    return dead_letter_details(job, call.ledger.events(job.id, types=types), call.ledger.list(replay_of=job.id))


@route("POST", "/v1/newest-replays", "reader", body=b.NewestReplaysBody, answer=b.NewestReplaysAnswer, verb="read", pool="read")
def newest_replays(call: Call) -> Any:
    """Return the newest replay of each of these jobs that has one."""
    limits.check_count("job_ids", len(call.body.job_ids), limits.ENQUEUE_BATCH_MAX)
    found = call.ledger.newest_replays(call.body.job_ids)
    return {"replays": {str(id_): call.view(job) for id_, job in found.items() if call.principal.sees(job.queue)}}
