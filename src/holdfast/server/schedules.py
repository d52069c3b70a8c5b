"""Routes on schedules."""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.errors import Forbidden, NotFound, ValidationError
from holdfast.ledger import ScheduleRecord
from holdfast.ledger.verbs.declarations import declared_item
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.routes import Nothing, route
from holdfast.shapes import EnqueueAnswer, answer_shape


class ScheduleFields(b.DeclaredEnqueueBody, frozen=True):
    """A schedule: the job that it makes, and when."""

    cron: str | None = None
    every: b.Duration | None = None
    tz: str = "UTC"
    missed: Literal["skip", "one", "all"] = "one"
    overlap: Literal["allow", "skip", "cancel"] = "allow"
    jitter: b.Duration = 0.0
    start: datetime | None = None
    end: datetime | None = None


SchedulesAnswer = answer_shape("SchedulesAnswer", schedules=list[ScheduleRecord])
OneSchedule = answer_shape("OneSchedule", schedule=ScheduleRecord)
FiringsAnswer = answer_shape("FiringsAnswer", times=list[datetime])


def _visible(call: Call, name: str) -> ScheduleRecord:
    """Return a schedule. One of another queue does not exist for the caller."""
    found = call.ledger.schedule(name)
    if not call.principal.sees(found.queue):
        raise NotFound(f"there is no schedule {name!r:.80}", schedule=name)
    return found


@route("GET", "/v1/schedules", "reader", query=b.NameQuery, answer=SchedulesAnswer, verb="read")
def schedules(call: Call) -> Any:
    """List schedules, by name."""
    found = call.visible_page(call.ledger.schedules, lambda one: call.principal.sees(one.queue))
    return {"schedules": found}


@route("GET", "/v1/schedules/{name}", "reader", answer=OneSchedule, verb="read")
def schedule(call: Call) -> Any:
    """Return one schedule."""
    return {"schedule": _visible(call, call.parameters["name"])}


@route("PUT", "/v1/schedules/{name}", "operator", body=ScheduleFields, answer=OneSchedule)
def set_schedule(call: Call) -> Any:
    """Make a schedule, or replace the one of this name."""
    _check_name(call)
    fields = _fields(call, call.body)
    name, kind = call.parameters["name"], call.body.kind
    return {"schedule": call.ledger.set_schedule(name, kind, request_id=call.request_id, actor=call.actor, **fields)}


def _check_name(call: Call) -> None:
    """Raise Forbidden if a schedule of a queue that the caller may not use has the name of the path."""
    if call.principal.sees_all:
        return
    with contextlib.suppress(NotFound):
        if not call.principal.sees(call.ledger.schedule(call.parameters["name"]).queue):
            raise Forbidden("a schedule that this token does not cover has this name", action="Use another name.")


def _fields(call: Call, given: ScheduleFields) -> dict[str, Any]:
    """Return the fields of a schedule, without its kind, as the ledger takes them."""
    call.see_dependencies(given.depends_on)
    call.see_group(given.group)
    fields = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    if given.queue is None:
        fields = declared_item(fields, call.ledger.declarations())
    call.see_queue(fields.setdefault("queue", "default"))
    del fields["kind"]
    return fields | {"args": b.sent(given.args)}


@route("DELETE", "/v1/schedules/{name}", "operator", answer=None, status=204)
def remove_schedule(call: Call) -> Any:
    """Remove a schedule. Its jobs stay."""
    if not call.principal.sees_all:
        _visible(call, call.parameters["name"])
    call.ledger.remove_schedule(call.parameters["name"], request_id=call.request_id, actor=call.actor)


@route("POST", "/v1/schedules/{name}/pause", "operator", body=Nothing, answer=OneSchedule)
def pause_schedule(call: Call) -> Any:
    """Let a schedule make no jobs."""
    name = _visible(call, call.parameters["name"]).name
    return {"schedule": call.ledger.pause_schedule(name, request_id=call.request_id, actor=call.actor)}


@route("POST", "/v1/schedules/{name}/resume", "operator", body=Nothing, answer=OneSchedule)
def resume_schedule(call: Call) -> Any:
    """Let a paused schedule make jobs again."""
    name = _visible(call, call.parameters["name"]).name
    return {"schedule": call.ledger.resume_schedule(name, request_id=call.request_id, actor=call.actor)}


@route("POST", "/v1/schedules/{name}/run", "operator", body=Nothing, answer=EnqueueAnswer, status=201)
def run_schedule(call: Call) -> Reply:
    """Make a job of a schedule now."""
    job = call.ledger.run_schedule(_visible(call, call.parameters["name"]).name, request_id=call.request_id, actor=call.actor)
    headers = {"ETag": f'"{job.rev}"', "Location": f"/v1/jobs/{job.id}"}
    return Reply({"job": call.view(job), "is_new": job.is_new}, 201 if job.is_new else 200, headers)


class FiringsQuery(b.Body, frozen=True):
    name: str | None = None
    """A schedule. Without it, the query has the times of one that does not exist."""
    cron: str | None = None
    every: str | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    count: int = 10


@route("GET", "/v1/firings", "reader", query=FiringsQuery, answer=FiringsAnswer, verb="read")
def next_firings(call: Call) -> Any:
    """Return the next planned times of a schedule, or those that a schedule with the given times would have."""
    given = msgspec.structs.asdict(call.query)
    if given["name"] is not None:
        _visible(call, given["name"])
    if given["every"] is not None:
        with contextlib.suppress(ValueError):  # a text such as 15m
            given["every"] = float(given["every"])
    return {"times": call.ledger.next_firings(**given)}


class DeclaredSchedules(b.Body, frozen=True):
    schedules: dict[str, ScheduleFields]


class DeclaredAnswer(msgspec.Struct, frozen=True):
    taken: list[str]
    """Names under which an operator has set a schedule. They are not declared."""


@route("PUT", "/v1/schedule-declarations/{kind}", "worker", body=DeclaredSchedules, answer=DeclaredAnswer, verb="sign-in")
def declare_schedules(call: Call) -> Any:
    """Declare the schedules of the handler of a kind, in place of those that it has declared before."""
    kind = call.parameters["kind"]
    if any(given.kind != kind for given in call.body.schedules.values()):
        raise ValidationError(f"a schedule is not of the kind {kind!r:.80}", field="kind")
    declared = {name: _fields(call, given) for name, given in call.body.schedules.items()}
    if not call.principal.sees_all:
        for known in _declared(call, kind):
            call.see_queue(known.queue)
    return {"taken": call.ledger.declare_schedules(kind, declared, actor=call.actor)}


def _declared(call: Call, kind: str) -> Iterator[ScheduleRecord]:
    """Yield the schedules that the handler of a kind has declared, also those of other queues."""
    after = ""
    while page := call.ledger.schedules(after=after):
        yield from (known for known in page if known.declared and known.kind == kind)
        after = page[-1].name
