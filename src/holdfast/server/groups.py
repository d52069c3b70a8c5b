"""Routes on groups of jobs.

A group has no queue. A caller that may not use all queues sees the groups whose follow-up jobs are in queues that it may use.
"""

import contextlib
from functools import partial
from typing import Any

import msgspec

from holdfast.core.explain.model import WhyNotRunning
from holdfast.core.groups import FollowUpName
from holdfast.errors import Conflict, Forbidden, NotFound
from holdfast.ledger import GroupChange, GroupRecord
from holdfast.ledger.verbs.groups import follow_up_item
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.shapes import JobView, answer_shape


class GroupFields(b.Body, frozen=True):
    """The follow-up jobs of a group."""

    then: b.DeclaredEnqueueBody | None = None
    on_dead: b.DeclaredEnqueueBody | None = None


class GroupQuery(b.NameQuery, frozen=True):
    unfinished: bool = False
    """Leave out groups that are done."""


class GroupJobsQuery(b.PageQuery, frozen=True):
    status: str | None = None
    """Names of statuses, separated by commas."""
    why: bool = False
    """Whether the answer says why queued jobs wait."""


class GroupCancelBody(b.Body, frozen=True):
    hard: bool = False
    reason: str = "requested"


GroupsAnswer = answer_shape("GroupsAnswer", groups=list[GroupRecord])
OneGroup = answer_shape("OneGroup", group=GroupRecord)


class GroupJobsAnswer(msgspec.Struct, frozen=True):
    jobs: list[JobView]
    next_after: int | None
    why: dict[str, WhyNotRunning] | msgspec.UnsetType = msgspec.UNSET
    """With `why=true`: what keeps each queued job from being claimed, by its id."""


def _visible(call: Call) -> str:
    """Return the name in the path, after a check that the caller may see that group."""
    name = call.parameters["name"]
    call.see_group(name)
    return name


def _all_queues(call: Call) -> str:
    """Return the name in the path. Raise an error unless the caller may use all queues: a group's jobs may be in any of them."""
    name = _visible(call)
    call.check_scope(None)
    return name


@route("GET", "/v1/groups", "reader", query=GroupQuery, answer=GroupsAnswer, verb="read")
def groups(call: Call) -> Any:
    """List groups, by name."""
    found = call.visible_page(partial(call.ledger.groups, unfinished=call.query.unfinished), call.sees_group)
    return {"groups": found}


@route("GET", "/v1/groups/{name}", "reader", answer=OneGroup, verb="read")
def group(call: Call) -> Any:
    """Return one group, with its counts."""
    return {"group": call.visible_group(call.parameters["name"])}


@route("PUT", "/v1/groups/{name}", "client_or_worker", body=GroupFields, answer=OneGroup)
def make_group(call: Call) -> Any:
    """Make a group that jobs can join."""
    name = call.parameters["name"]
    _check_name(call, name)
    given = {"then": _item(call, "then", call.body.then), "on_dead": _item(call, "on_dead", call.body.on_dead)}
    return {"group": call.ledger.group(name, request_id=call.request_id, actor=call.actor, **given)}


def _check_name(call: Call, name: str) -> None:
    """Raise Forbidden if a group that the caller may not see has this name."""
    if not call.principal.sees_all:
        with contextlib.suppress(NotFound):
            if not call.sees_group(call.ledger.get_group(name)):
                raise Forbidden("a group that this token does not cover has this name", action="Use another name.")


def _item(call: Call, field: FollowUpName, given: b.DeclaredEnqueueBody | None) -> dict[str, Any] | None:
    """Return a follow-up job as the ledger takes it."""
    if given is None:
        return None
    call.see_dependencies(given.depends_on)
    call.see_group(given.group)
    fields = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    if given.queue is None:
        fields = follow_up_item(call.ledger, call.parameters["name"], field, fields)
    call.see_queue(fields.setdefault("queue", "default"))
    return fields | {"args": b.sent(given.args)}


@route("POST", "/v1/groups/{name}/close", "client_or_worker", body=Nothing, answer=OneGroup)
def close_group(call: Call) -> Any:
    """Let no more jobs join a group."""
    name = _visible(call)
    try:
        found = call.ledger.close_group(name, request_id=call.request_id, actor=call.actor)
    except Conflict as refused:
        if all(call.sees_group(call.ledger.get_group(child)) for child in refused.context.get("waits_for", ())):
            raise
        # The names of groups that the caller may not see are left out.
        action = "Close it when they are done."
        raise Conflict(f"the group {name!r} waits for follow-up jobs of other groups", action=action, group=name) from None
    return {"group": found}


@route("POST", "/v1/groups/{name}/cancel", "client", body=GroupCancelBody, answer=GroupChange)
def cancel_group(call: Call) -> Any:
    """Close a group, and cancel its jobs that have not ended."""
    name = _all_queues(call)
    return call.ledger.cancel_group(name, reason=call.body.reason, hard=call.body.hard, actor=call.actor)


@route("POST", "/v1/groups/{name}/replay", "operator", body=b.ReasonBody, answer=GroupChange)
def replay_group(call: Call) -> Any:
    """Replay the jobs of a group that did not succeed."""
    return call.ledger.replay_group(_all_queues(call), reason=call.body.reason, actor=call.actor)


@route("GET", "/v1/groups/{name}/jobs", "reader", query=GroupJobsQuery, answer=GroupJobsAnswer, verb="read")
def group_jobs(call: Call) -> Any:
    """List the jobs of a group, by id."""
    query = call.query
    status = None if query.status is None else query.status.split(",")
    found = call.ledger.group_jobs(_visible(call), status=status, after=query.after, limit=query.limit)
    after = found[-1].id if len(found) == query.limit else None
    shown = [call.view(job) for job in found if call.principal.sees(job.queue)]
    return {"jobs": shown, "next_after": after} | ({"why": call.waits(shown)} if query.why else {})
