"""Routes on sinks and supervised runs."""

from typing import Any

from holdfast.ledger import SinkState
from holdfast.ledger.verbs.services import RunState
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.shapes import answer_shape

OneSink = answer_shape("OneSink", sink=SinkState)


@route("GET", "/v1/sinks", "reader", answer=answer_shape("SinksAnswer", sinks=list[SinkState]), verb="read")
def sinks(call: Call) -> Any:
    """Return how far the deliveries to each sink have come."""
    return {"sinks": call.ledger.sinks()}


@route("POST", "/v1/sinks/{name}/skip", "operator", body=Nothing, answer=OneSink)
def skip_sink_event(call: Call) -> Any:
    """Skip the event that a sink does not accept."""
    return {"sink": call.ledger.skip_sink_event(call.parameters["name"])}


@route("POST", "/v1/sinks/{name}/revive", "operator", body=Nothing, answer=OneSink)
def revive_sink(call: Call) -> Any:
    """Deliver to a sink again that was given up."""
    return {"sink": call.ledger.revive_sink(call.parameters["name"])}


@route("DELETE", "/v1/sinks/{name}", "admin", answer=None, status=204)
def drop_sink(call: Call) -> Any:
    """Forget a sink and its position."""
    call.ledger.drop_sink(call.parameters["name"])


@route("GET", "/v1/runs", "reader", query=b.NameQuery, answer=answer_shape("RunsAnswer", runs=list[RunState]), verb="read")
def runs(call: Call) -> Any:
    """List supervised runs."""
    return {"runs": call.ledger.runs(after=call.query.after, limit=call.query.limit)}


@route("POST", "/v1/runs/{name}/reset", "operator", body=Nothing, answer=answer_shape("OneRun", run=RunState))
def reset_run(call: Call) -> Any:
    """Let a run that was given up start again."""
    return {"run": call.ledger.reset_run(call.parameters["name"], actor=call.actor)}
