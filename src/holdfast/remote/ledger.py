"""The remote ledger: the same verbs, errors and answers as a ledger on a store.

Verbs that change jobs are those of the ledger: they check their arguments here and make commands, which `RemotePipeline` sends.
This file has the verbs that a ledger on a store runs as a transaction of its own.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core import access, limits, payloads
from holdfast.core import commands as c
from holdfast.core import policy as policies
from holdfast.core.model import Actor, Role
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import Event, HeldJob, KeyRecord, Ledger, SinkState, validate
from holdfast.ledger.base import claimed_job
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.keyring import Keyring
from holdfast.ledger.requests import Request
from holdfast.ledger.sweep import Entropy
from holdfast.ledger.transaction import StepTransactions
from holdfast.ledger.validators import HookSource
from holdfast.ledger.verbs.access import NewToken, TokenRecord
from holdfast.ledger.verbs.holders import signed_object
from holdfast.ledger.verbs.proofs import PublicLike, admit_public
from holdfast.ledger.verbs.services import RunState
from holdfast.proof.envelopes import read_envelope
from holdfast.proof.statements import read_statement
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.fleet import RemoteFleetVerbs
from holdfast.remote.flow import FLOW_SETTINGS, RemoteFlowVerbs
from holdfast.remote.groups import GROUP_SETTINGS, RemoteGroupVerbs
from holdfast.remote.items import path
from holdfast.remote.pipeline import Identity, RemotePipeline
from holdfast.remote.reading import RemoteReadVerbs
from holdfast.remote.schedules import SCHEDULE_SETTINGS, RemoteScheduleVerbs
from holdfast.remote.store import RemoteStore
from holdfast.remote.summaries import RemoteSummaryVerbs
from holdfast.remote.tasks import RemoteSteps
from holdfast.remote.transport import Transport
from holdfast.store.base import Store
from holdfast.watch.process import Metrics

T = TypeVar("T")

OPEN_SECONDS = 10.0
"""How long to try to reach the server before a ledger is opened."""


class RemoteLedger(
    RemoteScheduleVerbs,
    RemoteFlowVerbs,
    RemoteGroupVerbs,
    RemoteReadVerbs,
    RemoteFleetVerbs,
    RemoteSummaryVerbs,
    Ledger,
):
    """A ledger on a server. `holdfast.open` returns one for a url that starts with https:// or http://."""

    def __init__(
        self,
        transport: Transport,
        entropy: Entropy,
        monotonic: Callable[[], float],
        *,
        actor: str,
        incarnation: str,
        metrics: Metrics | None,
        ring: Keyring,
        wall: Callable[[], int],
        validators: HookSource | None,
    ) -> None:
        facts = transport.call("GET", "/v1/ledger", a.LedgerFacts, seconds=OPEN_SECONDS)
        me = transport.call("GET", "/v1/me", a.TokenFacts, seconds=OPEN_SECONDS)
        identity = Identity(me, actor, incarnation)
        super().__init__(
            cast(Store, RemoteStore(transport, facts)),
            entropy,
            monotonic,
            actor=identity.name,
            incarnation=incarnation,
            metrics=metrics,
            ring=ring,
            wall=wall,
            validators=validators,
        )
        if me.role == "worker" and not me.act_as:
            self.token_worker = me.name
        self._limit_keys = None  # the server adds the keys of limits
        self._transport = transport
        self._remote = RemotePipeline(transport, identity, self.metrics, entropy.nonce, self._signer)
        # Both have the methods that verbs use.
        self._pipeline = cast(CommitPipeline, self._remote)
        self.step_transactions = cast(StepTransactions, RemoteSteps(self._remote, transport, entropy.nonce, self.metrics))

    # Steps that verbs share

    def _many(
        self,
        verb: str,
        commands: Sequence[Any],
        request_id: str | None,
        convert: Callable[[Any], Any],
        *,
        waits: bool = True,
        beats: Sequence[c.Heartbeat] = (),
    ) -> list[Any]:
        limits.check_count(verb, len(commands), limits.WRITE_BATCH_MAX)
        if not commands:
            return []
        sign = self._signer.sign_many
        result = self._remote.submit_many(Request(verb, sign(commands), waits=waits, beats=sign(beats)))
        return [answer if isinstance(answer, HoldfastError) else convert(answer) for answer in result.answers]

    def _submit_chosen(self, request: Request) -> list[Any]:
        return self._remote.submit_chosen(request).answers if request.commands else []

    def _set(
        self,
        verb: str,
        body: tuple[Any, ...],
        request_id: str | None,
        actor: str | Actor | None,
        work: Callable[[Any], None],
    ) -> None:
        method, target, query, sent = _SETTINGS[verb](*body)
        self._send_change(method, target, dict, actor, request_id, body=sent, query=query)

    # Workers

    def _find_unanswered(self, command: c.ClaimNext) -> list[HeldJob]:
        """Repeat a claim with its key. It gives back the jobs of the lost answer, or claims now if there are none."""
        found = self._remote.submit(Request("claim", [command])).answers[0]
        taken = self._unanswered.pop(command.request_id or "", None)
        return [] if taken is None else [claimed_job(job) for job in found]

    def settle_alike(self, jobs: Sequence[HeldJob], result: Any, *, request_id: str) -> Container[int] | None:
        given = list(validate.items("settle_alike", jobs))
        answers = self.settle_many([(job.fence, result) for job in given], request_id=request_id)
        done = [job.id for job, answer in zip(given, answers, strict=True) if answer is None]
        return None if len(done) == len(given) else done

    def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        if body is not None and not isinstance(body, Mapping):
            raise ValidationError("body must be a mapping", field="body")
        sent = None if body is None else validate.json_value("body", dict(body), limits.WORKER_BYTES_MAX)
        query = {"keep": "true" if sent is None else None}
        described: Any = {} if sent is None else items.raw(sent)
        self._send_change("PUT", path("workers", who.name), dict, who, query=query, body=described, lane="beat")

    def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        self._send_change("DELETE", path("workers", who.name), type(None), who)

    def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        ttl_ms = policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX)
        sent = {"holder": holder, "ttl": items.milliseconds(ttl_ms)}
        return self._changed("PUT", path("duties", name), "taken", bool, body=sent)

    def drop_duty(self, name: str, holder: str) -> None:
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        self._send_change("DELETE", path("duties", name), type(None), query={"holder": holder})

    def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        given = signed_object(envelope)
        statement = read_statement(read_envelope(given).statement)
        sent = {"envelope": given} if content is payloads.UNSET else {"envelope": given, "content": content}
        target = path("jobs", statement.job_id, "events")
        signer = statement.actor if statement.actor.role is Role.WORKER else None
        return self._changed("POST", target, "event", Event, signer, body=sent)

    # Operators

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        return self._changed("POST", "/v1/sweep", "events", dict[str, int], body={"limit": limit})

    def prune(self, *, batch: int = 1_000, **before: Any) -> dict[str, int]:
        limits.check_integer("batch", batch, 1, limits.PRUNE_BATCH_MAX)
        sent = {name: at for name, at in before.items() if at is not None}
        for name, at in sent.items():
            validate.moment(name, at)
        return self._changed("POST", "/v1/prune", "deleted", dict[str, int], body={**sent, "batch": batch})

    def revive_sink(self, name: str) -> SinkState:
        return self._sink(name, "revive")

    def skip_sink_event(self, name: str) -> SinkState:
        return self._sink(name, "skip")

    def _sink(self, name: str, verb: str) -> SinkState:
        limits.check_name("sink", name)
        return self._changed("POST", path("sinks", name, verb), "sink", SinkState, body={})

    def drop_sink(self, name: str) -> None:
        limits.check_name("sink", name)
        self._send_change("DELETE", path("sinks", name), type(None))

    def reset_run(self, name: str, *, actor: str | Actor | None = None) -> RunState:
        limits.check_name("name", name)
        return self._changed("POST", path("runs", name, "reset"), "run", RunState, actor, body={})

    # Tokens

    def new_token(
        self,
        role: str,
        name: str,
        *,
        queues: tuple[str, ...] | list[str] = (access.ANY,),
        act_as: tuple[str, ...] | list[str] = (),
        expires: Any = None,
        actor: str | Actor | None = None,
    ) -> NewToken:
        allowed = validate.choice("role", access.AccessRole, role)
        sent = items.without_none(
            role=allowed,
            name=limits.check_name("name", name),
            queues=access.check_queue_patterns(queues),
            act_as=access.check_actor_patterns(act_as, allowed),
            expires=None if expires is None else _token_time(expires),
        )
        return self._send_change("POST", "/v1/tokens", NewToken, actor, body=sent)

    def revoke_token(self, token_id: str, *, actor: str | Actor | None = None) -> TokenRecord:
        limits.check_name("token_id", token_id)
        return self._changed("DELETE", path("tokens", token_id), "token", TokenRecord, actor)

    # Keys. The server's own key vouches.

    def enrol_key(self, public: PublicLike, *, role: str, name: str, actor: str | Actor | None = None) -> KeyRecord:
        sent = {"public": admit_public(public).public.hex(), "role": role, "name": limits.check_name("name", name)}
        return self._changed("POST", "/v1/keys", "key", KeyRecord, actor, body=sent)

    def revoke_key(self, key_id: str, *, actor: str | Actor | None = None) -> KeyRecord:
        limits.check_name("key_id", key_id)
        return self._changed("POST", path("keys", key_id, "revoke"), "key", KeyRecord, actor, body={})

    def rotate_key(self, key_id: str, public: PublicLike, *, actor: str | Actor | None = None) -> KeyRecord:
        limits.check_name("key_id", key_id)
        sent = {"public": admit_public(public).public.hex()}
        return self._changed("POST", path("keys", key_id, "rotate"), "key", KeyRecord, actor, body=sent)


def _token_time(given: Any) -> str | None:
    return items.milliseconds(policies.duration_ms("expires", given, limits.TOKEN_MS_MIN, limits.TOKEN_MS_MAX))


Setting = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]
"""Method, path, query and body."""


_SETTINGS: dict[str, Callable[..., Setting]] = {
    "pause": lambda queue, *why: ("POST", path("queues", queue, "pause"), None, {"reason": why[0]} if why else {}),
    "unpause": lambda queue: ("POST", path("queues", queue, "unpause"), None, {}),
    **SCHEDULE_SETTINGS,
    **FLOW_SETTINGS,
    **GROUP_SETTINGS,
    "set_policy": lambda scope, name, changes: ("PATCH", path("policies", f"{scope}s", name), None, items.policy_fields(changes)),
    "unset_policy": lambda scope, name, declared: (
        "DELETE",
        path("policies", f"{scope}s", name),
        {"declared": "true" if declared else None},
        None,
    ),
    "declare_policy": lambda kind, queue, layer, flow: (
        "PUT",
        path("declarations", kind),
        None,
        {"queue": queue, "policy": items.policy_fields(msgspec.to_builtins(layer)), **msgspec.to_builtins(flow)},
    ),
}
"""How the settings of a ledger are sent. The arguments are what the verb has checked."""
