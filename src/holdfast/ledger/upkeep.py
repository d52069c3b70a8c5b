"""Verbs on the ledger itself: queues, policies, the liveness tick, retention."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import Actor, Micros, Policy, Role
from holdfast.core.proof.book import Book
from holdfast.core.proof.keys import KeyRole
from holdfast.errors import Forbidden, NotFound, ValidationError
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk
from holdfast.ledger.repeating import repeats
from holdfast.store.base import Session

Scope = Literal["kind", "tier"]


class Upkeep(Desk):
    def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Nothing more is claimed from the queue. Holders are not touched. Who did it, and why, is kept until it is unpaused."""
        limits.check_name("queue", queue)
        who, why = admit.actor(actor, Role.OPERATOR, self._actor), None if reason is None else admit.reason(reason)
        body = (queue,) if why is None else (queue, why)
        self._set("pause", body, request_id, who, lambda session: session.pause(queue, who.name, why))

    def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        limits.check_name("queue", queue)
        self._set("unpause", (queue,), request_id, actor, lambda session: session.unpause(queue))
        self._store.wake([queue])

    def _set(
        self,
        verb: str,
        body: tuple[Any, ...],
        request_id: str | None,
        actor: str | Actor | None,
        work: Callable[[Session], None],
    ) -> None:
        """A change of the ledger's own settings: no job, no event; a request id is honoured all the same."""
        who, request = admit.actor(actor, Role.OPERATOR, self._actor), admit.request_id(request_id)

        def once(session: Session) -> None:
            if request is None or not repeats(session, who, request, verb, admit.body_hash(verb, *body)):
                work(session)

        self._carrier.alone(once)

    def set_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set a kind's or a tier's policy as a whole, for leases issued from now on. Durations: seconds, "30s", timedelta.

        Where keys are enrolled, less than before is to be signed only if a key of a server or an operator is here.
        """
        if (kind is None) == (tier is None):
            raise ValidationError("set_policy takes a kind or a tier", field="kind")
        layer = policies.settings(fields)
        scope: Scope = "tier" if kind is None else "kind"
        name = limits.check_name(scope, tier if kind is None else kind)

        def put(session: Session) -> None:
            self._put(session, self._books.current(session), scope, name, layer)

        self._set("set_policy", (scope, name, layer), request_id, actor, put)

    def amend_policy(self, kind: str, *, actor: str | Actor | None = None, **fields: Any) -> None:
        """Set some fields of a kind's policy; those that are not named stay as they are. Handlers' wishes come this way."""
        limits.check_name("kind", kind)
        policies.settings(fields)

        def work(session: Session) -> None:
            book = self._books.current(session)
            known = session.settings_of("kind", kind)
            layer = policies.amended(known, fields)
            if layer != known:
                self._put(session, book, "kind", kind, layer)

        self._set("amend_policy", (kind,), None, actor, work)

    def _put(self, session: Session, book: Book, scope: Scope, name: str, layer: policies.Settings) -> None:
        """The book is looked at before settings are locked, as by everybody who needs both."""
        lowers = policies.lowers_signed(session.settings_of(scope, name), layer)
        if lowers and book and self.ring.voucher(book, self._actor, KeyRole.OPERATOR) is None:
            raise Forbidden(
                f"no key here may say that less of {scope} {name!r} is to be signed",
                action="Keep signed= as it is, or open the ledger with a good key of a server or an operator (keys=, --key).",
                **{scope: name},
            )
        session.set_settings(scope, name, layer)

    def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What was set by `set_policy`: the fields of each kind and of each tier, durations in milliseconds (`lease_ttl_ms`)."""
        found: dict[str, dict[str, dict[str, Any]]] = {"kind": {}, "tier": {}}
        for scope, name, layer in self._store.peek(lambda session: session.all_settings()):
            found[scope][name] = msgspec.to_builtins(layer)
        return found

    def policy_of(self, job_id: int) -> Policy:
        """The policy that a lease on this job would have if it were issued now."""
        job_id = admit.job_id(job_id)

        def look(session: Session) -> Policy:
            found = session.load([job_id], lock=False).get(job_id)
            if found is None:
                raise NotFound(f"there is no job {job_id}", job_id=job_id)
            return session.policy_of(found)

        return self._store.read(look)

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        """One liveness tick: everything that is due for up to `limit` jobs. Answers how many of each event that made.

        Where events have to be signed and no server key is here, jobs are left alone; `unsigned` says how many.
        """
        return self._sweeper.tick(limit)

    def prune(self, *, jobs_before: datetime | None = None, beats_before: datetime | None = None,
              requests_before: datetime | None = None, workers_before: datetime | None = None,
              agents_before: datetime | None = None, batch: int = 1_000) -> dict[str, int]:  # fmt: skip
        """One bounded step of retention: finished jobs, contents of beats and kept answers older than the given times,
        workers not seen since, and where agents stood that were not at work since and hold nothing."""
        limits.check_integer("batch", batch, 1, limits.PRUNE_BATCH_MAX)
        wanted = {
            "jobs": jobs_before,
            "beats": beats_before,
            "requests": requests_before,
            "workers": workers_before,
            "agents": agents_before,
        }
        before = {name: admit.moment(f"{name}_before", at) for name, at in wanted.items() if at is not None}

        def work(session: Session) -> dict[str, int]:
            steps: dict[str, Callable[[Micros, int], int]] = {
                "jobs": session.prune_jobs,
                "beats": session.prune_beats,
                "requests": session.prune_requests,
                "workers": session.prune_workers,
                "agents": session.prune_agents,
            }
            return {name: steps[name](at, batch) for name, at in before.items()}

        return self._carrier.alone(work)
