"""Routes on policies."""

from typing import Any

import msgspec

from holdfast.core.policy import SourcedField
from holdfast.errors import NotFound, ValidationError
from holdfast.ledger import DeclarationRecord
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.shapes import answer_shape


class PoliciesAnswer(msgspec.Struct, frozen=True):
    policies: dict[str, dict[str, dict[str, Any]]]
    declarations: dict[str, DeclarationRecord]


SourcesAnswer = answer_shape("SourcesAnswer", fields=list[SourcedField])


class SourcesQuery(b.Body, frozen=True):
    kind: str | None = None
    tier: str | None = None


@route("GET", "/v1/policy-sources", "reader", query=SourcesQuery, answer=SourcesAnswer, verb="read")
def policy_fields(call: Call) -> Any:
    """Return the effective policy of a job of a kind and a tier, and where each field comes from."""
    return {"fields": call.ledger.policy_sources(call.query.kind, tier=call.query.tier)}


@route("GET", "/v1/policies", "reader", answer=PoliciesAnswer, verb="read")
def policies(call: Call) -> Any:
    """Return what operators and handlers have set."""
    return {"policies": call.ledger.policies(), "declarations": call.ledger.declarations()}


def _whose(call: Call) -> dict[str, str]:
    scope, name = call.parameters["scope"], call.parameters["name"]
    if scope not in ("kinds", "tiers"):
        raise NotFound("policies are of kinds or of tiers", action="Use /v1/policies/kinds/NAME or /v1/policies/tiers/NAME.")
    return {"kind" if scope == "kinds" else "tier": name}


@route("GET", "/v1/policies/{scope}/{name}", "reader", answer=SourcesAnswer, verb="read")
def policy_sources(call: Call) -> Any:
    """Return the effective policy of a kind or a tier, and where each field comes from."""
    return {"fields": call.ledger.policy_sources(**_whose(call))}


@route("PATCH", "/v1/policies/{scope}/{name}", "admin", body=dict, answer=SourcesAnswer, verb="policies")
def set_policy(call: Call) -> Any:
    """Set fields of the policy of a kind or a tier. Null unsets a field."""
    if reserved := call.body.keys() & {"kind", "tier", "request_id", "actor", "queue"}:
        raise ValidationError(f"a policy has no field {min(reserved)!r}", field=min(reserved))
    whose = _whose(call)
    call.ledger.set_policy(**whose, **call.body, request_id=call.request_id, actor=call.actor)
    return {"fields": call.ledger.policy_sources(**whose)}


class UnsetQuery(b.Body, frozen=True):
    declared: bool = False


@route("DELETE", "/v1/policies/{scope}/{name}", "admin", query=UnsetQuery, answer=SourcesAnswer, verb="policies")
def unset_policy(call: Call) -> Any:
    """Unset all fields of the policy of a kind or a tier, or remove the declaration of a kind's handler."""
    whose = _whose(call)
    call.ledger.unset_policy(**whose, declared=call.query.declared, request_id=call.request_id, actor=call.actor)
    return {"fields": call.ledger.policy_sources(**whose)}


class DeclareBody(b.Body, frozen=True):
    queue: str = "default"
    policy: dict[str, Any] = msgspec.field(default_factory=dict)
    limits: dict[str, int] | list[str] = msgspec.field(default_factory=list)
    """The limits that its jobs draw on."""
    requires: list[str] = msgspec.field(default_factory=list)
    """The labels that its jobs require."""


@route("PUT", "/v1/declarations/{kind}", "worker", body=DeclareBody, answer=Nothing, verb="sign-in")
def declare_policy(call: Call) -> Any:
    """Record what a worker's handler declares for its kind: its policy, and the queue, limits and labels of its jobs."""
    call.see_queue(call.body.queue)
    if reserved := call.body.policy.keys() & {"kind", "queue", "limits", "requires", "request_id", "actor"}:
        raise ValidationError(f"a policy has no field {min(reserved)!r}", field=min(reserved))
    call.ledger.declare_policy(
        call.parameters["kind"],
        queue=call.body.queue,
        limits=call.body.limits,
        requires=call.body.requires,
        request_id=call.request_id,
        actor=call.actor,
        **call.body.policy,
    )
    return {}
