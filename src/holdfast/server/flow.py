"""Routes on limits, and on how queues serve their partitions and their old jobs.

Limits are of the whole ledger: every caller reads them, since it names them in its jobs. Only a caller that may use all queues
changes them or sees what is in use of them.
"""

from typing import Any

import msgspec

from holdfast.errors import Forbidden
from holdfast.ledger import FlowStatus, LimitKeyRecord, LimitRecord, QueueSettingsRecord
from holdfast.ledger.verbs.flow import find_settings
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.redact import HIDDEN
from holdfast.server.routes import route
from holdfast.shapes import answer_shape


class LimitKeyFields(b.Body, frozen=True):
    """The numbers of one key. Without any, the key has those of its limit again."""

    concurrent: int | None = None
    rate: str | None = None
    """A number and a duration, such as 600/1m."""
    burst: int | None = None


class LimitFields(LimitKeyFields, frozen=True):
    by: str | None = None
    """The argument that is the key, such as args.tenant."""


LimitAnswer = answer_shape("LimitAnswer", limit=LimitRecord)


class LimitKeysQuery(b.Body, frozen=True):
    key: str | None = None
    """Only this key."""
    after: str | None = None
    """Keys after this one. A limit without keys has the key ""."""
    limit: int = 100


LimitKeysAnswer = answer_shape("LimitKeysAnswer", keys=list[LimitKeyRecord])


class QueueSettingsFields(b.Body, frozen=True):
    weights: dict[str, int] | None = None
    """Turns of each partition in one round."""


QueueSettingsAnswer = answer_shape("QueueSettingsAnswer", settings=QueueSettingsRecord)
AllQueueSettingsAnswer = answer_shape("AllQueueSettingsAnswer", queues=list[QueueSettingsRecord])


@route("GET", "/v1/limits", "reader", answer=answer_shape("LimitsAnswer", limits=list[LimitRecord]), verb="read")
def limits(call: Call) -> Any:
    """List limits, by name."""
    return {"limits": call.ledger.limits()}


@route("GET", "/v1/limits/{name}", "reader", answer=LimitAnswer, verb="read")
def limit(call: Call) -> Any:
    """Return one limit."""
    return {"limit": call.ledger.limit(call.parameters["name"])}


@route("PUT", "/v1/limits/{name}", "operator", body=LimitFields, answer=LimitAnswer)
def set_limit(call: Call) -> Any:
    """Make a limit, or replace the one of this name."""
    return _set(call, None)


@route("DELETE", "/v1/limits/{name}", "operator", answer=None, status=204)
def remove_limit(call: Call) -> Any:
    """Remove a limit. Jobs that draw on it go on without it."""
    call.check_scope(None)
    call.ledger.remove_limit(call.parameters["name"], request_id=call.request_id, actor=call.actor)


@route("GET", "/v1/limits/{name}/keys", "reader", query=LimitKeysQuery, answer=LimitKeysAnswer, verb="read")
def limit_keys(call: Call) -> Any:
    """List the keys of a limit, what is in use of them, and how many jobs wait for each."""
    call.check_scope(None)
    name, key = call.parameters["name"], call.query.key
    by = None if call.redaction is None else call.ledger.limit(name).by
    is_hidden = call.redaction is not None and by is not None and call.redaction.hides(by)
    if is_hidden and key is not None:
        raise Forbidden(f"the keys of limit {name} are hidden from this token", field="key")
    found = call.ledger.limit_keys(name, key=key, after=call.query.after, limit=call.query.limit)
    if is_hidden:
        found = [msgspec.structs.replace(one, key=HIDDEN) for one in found]
    return {"keys": found}


@route("PUT", "/v1/limits/{name}/keys/{key}", "operator", body=LimitKeyFields, answer=LimitAnswer, verb="set_limit")
def set_limit_key(call: Call) -> Any:
    """Set the numbers of one key of a limit. Without any, the key has those of the limit again."""
    return _set(call, call.parameters["key"])


def _set(call: Call, key: str | None) -> Any:
    call.check_scope(None)
    fields = msgspec.structs.asdict(call.body)
    made = call.ledger.set_limit(call.parameters["name"], key=key, request_id=call.request_id, actor=call.actor, **fields)
    return {"limit": made}


@route("GET", "/v1/flow", "reader", query=b.FlowQuery, answer=answer_shape("FlowStatusAnswer", status=FlowStatus), verb="read")
def flow_status(call: Call) -> Any:
    """Return what is in use of every limit, how many jobs wait for it, and how many jobs no running worker may have.

    A caller that may use some queues only sees no limits.
    """
    found = call.ledger.flow_status(max_age=call.query.max_age)
    unroutable = {queue: jobs for queue, jobs in found.unroutable.items() if call.principal.sees(queue)}
    return {"status": FlowStatus(limits=found.limits if call.principal.sees_all else [], unroutable=unroutable)}


@route("GET", "/v1/queue-settings", "reader", answer=AllQueueSettingsAnswer, verb="read")
def queue_settings(call: Call) -> Any:
    """List the settings of all queues that have any."""
    return {"queues": [one for one in call.ledger.queue_settings() if call.principal.sees(one.queue)]}


@route("GET", "/v1/queues/{name}/settings", "reader", answer=QueueSettingsAnswer, verb="read")
def settings_of_queue(call: Call) -> Any:
    """Return how a queue serves its partitions. A queue that was never set has no weights."""
    name = call.parameters["name"]
    call.see_queue(name)
    return {"settings": find_settings(call.ledger, name)}


@route("PUT", "/v1/queues/{name}/settings", "operator", body=QueueSettingsFields, answer=QueueSettingsAnswer)
def set_queue(call: Call) -> Any:
    """Set how a queue serves its partitions. What is not given is unset."""
    name = call.parameters["name"]
    call.see_queue(name)
    fields = msgspec.structs.asdict(call.body)
    return {"settings": call.ledger.set_queue(name, request_id=call.request_id, actor=call.actor, **fields)}
