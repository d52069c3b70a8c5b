"""Routes on queues, workers, policies, sinks, runs, keys and seals, and on the ledger itself."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core.doctor import Diagnosis
from holdfast.core.policy import SourcedField
from holdfast.errors import Forbidden, NotFound, ValidationError
from holdfast.ledger import DeclarationRecord, KeyRecord, QueueRecord, SinkState, WorkerRecord
from holdfast.ledger.verbs.proofs import Inclusion, TreeHead
from holdfast.ledger.verbs.services import RunState
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.version import __version__

FEATURES = ("batches", "long-poll", "events", "tasks", "signed-events")
"""What clients may ask of this server. The list only grows."""


# Queues


class QueuesQuery(b.Body, frozen=True):
    totals: bool = False
    """Take the numbers from the totals that are kept, instead of counting every job."""


@route("GET", "/v1/queues", "reader", query=QueuesQuery, answer=b.QueuesAnswer, verb="read")
def queues(call: Call) -> Any:
    """List every queue that has jobs or is paused."""
    return {"queues": [queue for queue in call.ledger.queues(totals=call.query.totals) if call.principal.sees(queue.name)]}


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


class CountsQuery(b.Body, frozen=True):
    max_age: float = 1.0
    """How many seconds old the numbers may be."""


@route("GET", "/v1/counts", "reader", query=CountsQuery, answer=b.CountsAnswer, verb="read")
def counts(call: Call) -> Any:
    """Return the number of jobs by queue and status."""
    found = call.ledger.counts(max_age=call.query.max_age)
    return {"counts": {name: by_status for name, by_status in found.items() if call.principal.sees(name)}}


# Workers


class WorkersQuery(b.Body, frozen=True):
    seen_within: str | None = None
    limit: int = 1_000


class WorkersAnswer(msgspec.Struct, frozen=True):
    workers: list[WorkerRecord]
    now: datetime


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


class UntilReadyAnswer(msgspec.Struct, frozen=True):
    seconds: float | None
    """Null if no job will become ready by itself."""


@route("GET", "/v1/until-ready", "worker", query=UntilReadyQuery, answer=UntilReadyAnswer, verb="claim")
def until_ready(call: Call) -> Any:
    """Return how long it takes until a job of these queues is ready."""
    return {"seconds": call.ledger.until_ready(call.query.queues, kinds=call.query.kinds)}


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


class DutyAnswer(msgspec.Struct, frozen=True):
    taken: bool


class WantedAnswer(msgspec.Struct, frozen=True):
    wanted: bool


@route("PUT", "/v1/duties/{name}", "admin", body=DutyBody, answer=DutyAnswer, verb="duties")
def take_duty(call: Call) -> Any:
    """Take or renew a duty."""
    return {"taken": call.ledger.take_duty(call.parameters["name"], call.body.holder, ttl=call.body.ttl)}


@route("DELETE", "/v1/duties/{name}", "admin", query=DutyQuery, answer=None, status=204, verb="duties")
def drop_duty(call: Call) -> Any:
    """Give up a duty."""
    call.ledger.drop_duty(call.parameters["name"], call.query.holder)


@route("GET", "/v1/duties/sweep/wanted", "worker", query=DutyQuery, answer=WantedAnswer, verb="claim")
def wants_sweeping(call: Call) -> Any:
    """Return whether the caller should sweep. Only an admin can take the duty."""
    return {"wanted": call.principal.may("admin") and call.ledger.wants_sweeping(call.query.holder)}


class SweepBody(b.Body, frozen=True):
    limit: int = 1_000


class EventCounts(msgspec.Struct, frozen=True):
    events: dict[str, int]


@route("POST", "/v1/sweep", "operator", body=SweepBody, answer=EventCounts)
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
    batch: int = 1_000


class DeletedCounts(msgspec.Struct, frozen=True):
    deleted: dict[str, int]


@route("POST", "/v1/prune", "admin", body=PruneBody, answer=DeletedCounts)
def prune(call: Call) -> Any:
    """Delete old records in one bounded step."""
    return {"deleted": call.ledger.prune(**msgspec.structs.asdict(call.body))}


# Policies


class PoliciesAnswer(msgspec.Struct, frozen=True):
    policies: dict[str, dict[str, dict[str, Any]]]
    declarations: dict[str, DeclarationRecord]


class SourcesAnswer(msgspec.Struct, frozen=True):
    fields: list[SourcedField]


Scope = Literal["kinds", "tiers"]


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


def _set(call: Call, verb: Any) -> Any:
    if reserved := call.body.keys() & {"kind", "tier", "request_id", "actor", "queue"}:
        raise ValidationError(f"a policy has no field {min(reserved)!r}", field=min(reserved))
    whose = _whose(call)
    verb(**whose, **call.body, request_id=call.request_id, actor=call.actor)
    return {"fields": call.ledger.policy_sources(**whose)}


@route("PUT", "/v1/policies/{scope}/{name}", "admin", body=dict, answer=SourcesAnswer, verb="policies")
def set_policy(call: Call) -> Any:
    """Set the policy of a kind or a tier, and unset all fields that are not given."""
    return _set(call, call.ledger.set_policy)


@route("PATCH", "/v1/policies/{scope}/{name}", "admin", body=dict, answer=SourcesAnswer, verb="policies")
def amend_policy(call: Call) -> Any:
    """Set some fields of the policy of a kind or a tier."""
    return _set(call, call.ledger.amend_policy)


class UnsetQuery(b.Body, frozen=True):
    fields: str = ""
    """Names of fields, separated by commas. None: all."""
    declared: bool = False


@route("DELETE", "/v1/policies/{scope}/{name}", "admin", query=UnsetQuery, answer=SourcesAnswer, verb="policies")
def unset_policy(call: Call) -> Any:
    """Unset fields of the policy of a kind or a tier."""
    whose, names = _whose(call), [name for name in call.query.fields.split(",") if name]
    call.ledger.unset_policy(
        whose.get("kind"),
        names,
        tier=whose.get("tier"),
        declared=call.query.declared,
        request_id=call.request_id,
        actor=call.actor,
    )
    return {"fields": call.ledger.policy_sources(**whose)}


class DeclareBody(b.Body, frozen=True):
    queue: str = "default"
    policy: dict[str, Any] = msgspec.field(default_factory=dict)


@route("PUT", "/v1/declarations/{kind}", "worker", body=DeclareBody, answer=Nothing, verb="sign-in")
def declare_policy(call: Call) -> Any:
    """Record the policy that a worker's handler declares for its kind."""
    call.see_queue(call.body.queue)
    if reserved := call.body.policy.keys() & {"kind", "queue", "request_id", "actor"}:
        raise ValidationError(f"a policy has no field {min(reserved)!r}", field=min(reserved))
    call.ledger.declare_policy(
        call.parameters["kind"], queue=call.body.queue, request_id=call.request_id, actor=call.actor, **call.body.policy
    )
    return {}


# Sinks and runs


class SinksAnswer(msgspec.Struct, frozen=True):
    sinks: list[SinkState]


class OneSink(msgspec.Struct, frozen=True):
    sink: SinkState


@route("GET", "/v1/sinks", "reader", answer=SinksAnswer, verb="read")
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


class RunsAnswer(msgspec.Struct, frozen=True):
    runs: list[RunState]


class OneRun(msgspec.Struct, frozen=True):
    run: RunState


@route("GET", "/v1/runs", "reader", query=b.NameQuery, answer=RunsAnswer, verb="read")
def runs(call: Call) -> Any:
    """List supervised runs."""
    return {"runs": call.ledger.runs(after=call.query.after, limit=call.query.limit)}


@route("POST", "/v1/runs/{name}/reset", "operator", body=Nothing, answer=OneRun)
def reset_run(call: Call) -> Any:
    """Let a run that was given up start again."""
    return {"run": call.ledger.reset_run(call.parameters["name"], actor=call.actor)}


# Keys and seals


class KeysAnswer(msgspec.Struct, frozen=True):
    keys: list[KeyRecord]


class OneKey(msgspec.Struct, frozen=True):
    key: KeyRecord


class KeyBody(b.Body, frozen=True):
    public: str
    role: str
    name: str


class RotateBody(b.Body, frozen=True):
    public: str


@route("GET", "/v1/keys", "reader", answer=KeysAnswer, verb="read")
def keys(call: Call) -> Any:
    """List every key that was ever enrolled."""
    return {"keys": call.ledger.keys()}


@route("POST", "/v1/keys", "admin", body=KeyBody, answer=OneKey, status=201, verb="keys")
def enrol_key(call: Call) -> Any:
    """Enrol a key. The server's own key vouches for it."""
    body = call.body
    return {"key": call.ledger.enrol_key(body.public, role=body.role, name=body.name, actor=call.actor)}


@route("POST", "/v1/keys/{key_id}/rotate", "admin", body=RotateBody, answer=OneKey, verb="keys")
def rotate_key(call: Call) -> Any:
    """Enrol a new key for the role and name of another, and revoke that one."""
    return {"key": call.ledger.rotate_key(call.parameters["key_id"], call.body.public, actor=call.actor)}


@route("POST", "/v1/keys/{key_id}/revoke", "admin", body=Nothing, answer=OneKey, verb="keys")
def revoke_key(call: Call) -> Any:
    """Revoke a key."""
    return {"key": call.ledger.revoke_key(call.parameters["key_id"], actor=call.actor)}


class HeadAnswer(msgspec.Struct, frozen=True):
    head: TreeHead | None


class HeadsAnswer(msgspec.Struct, frozen=True):
    heads: list[TreeHead]


@route("GET", "/v1/head", "reader", answer=HeadAnswer, verb="read")
def head(call: Call) -> Any:
    """Return the newest signed head of the sealed log."""
    return {"head": call.ledger.head()}


@route("GET", "/v1/heads", "reader", query=b.PageQuery, answer=HeadsAnswer, verb="read")
def heads(call: Call) -> Any:
    """List the signed heads of the sealed log."""
    return {"heads": call.ledger.heads(after=call.query.after, limit=call.query.limit)}


@route("GET", "/v1/jobs/{job_id}/inclusion", "reader", answer=Inclusion, verb="read")
def inclusion(call: Call) -> Any:
    """Return a job's events with proofs that they are in the sealed log."""
    return call.ledger.inclusion(call.check_visible())


# The ledger itself


class PositionAnswer(msgspec.Struct, frozen=True):
    pos: int
    stable: int
    """No event at or before this position can still be committed."""


class NowAnswer(msgspec.Struct, frozen=True):
    now: datetime


class LedgerAnswer(msgspec.Struct, frozen=True):
    ledger_id: str
    schema: int
    version: str
    features: list[str]
    incarnation: str


class MeAnswer(msgspec.Struct, frozen=True):
    name: str
    role: str
    queues: list[str]
    act_as: list[str]
    can: list[str]
    """The verbs that the caller may use, as routes name them."""
    expires_at: datetime | None


@route("GET", "/v1/position", "reader", answer=PositionAnswer, verb="read")
def position(call: Call) -> Any:
    """Return the newest position in the total order of events."""
    return {"pos": call.ledger.position(), "stable": call.ledger.stable_position()}


@route("GET", "/v1/now", "reader", answer=NowAnswer, verb="read")
def now(call: Call) -> Any:
    """Return the ledger's time."""
    return {"now": call.ledger.now()}


@route("GET", "/v1/doctor", "reader", answer=Diagnosis, verb="read")
def doctor(call: Call) -> Any:
    """Examine the ledger. The findings speak of all queues, so a token for some of them does not get them."""
    if not call.principal.sees_all:
        raise Forbidden("this token covers some queues only, and the findings are about all of them")
    return call.ledger.diagnose()


@route("GET", "/v1/ledger", "reader", answer=LedgerAnswer, verb="read")
def ledger(call: Call) -> Any:
    """Return what this ledger and this server are."""
    found = call.ledger
    return LedgerAnswer(found.id, found.schema.version, __version__, list(FEATURES), found.incarnation)


@route("GET", "/v1/me", "any", answer=MeAnswer, verb="read")
def me(call: Call) -> Any:
    """Return who the caller is, and what it may do."""
    who = call.principal
    return MeAnswer(who.name, who.role.value, list(who.queues), list(who.act_as), call.server.verbs_of(who), who.expires_at)
