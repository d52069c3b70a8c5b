"""Verbs for policies: the fields that operators set, those that handlers declare, and where each value comes from."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core import policy as policies
from holdfast.core.limits import LABELS_REQUIRED_MAX, check_name
from holdfast.core.model import Actor, Policy, Role
from holdfast.core.policy import NO_SETTINGS, Settings, SourcedField
from holdfast.errors import Forbidden, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.verbs.declarations import DeclarationVerb
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyRole
from holdfast.store.fleet import Declaration, DeclaredFlow
from holdfast.store.policies import Scope
from holdfast.store.session import Session


class PolicyVerbs(DeclarationVerb):
    def set_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set fields of the policy of a kind or a tier, for leases issued from now on. Other fields stay as they were set.

        A duration is a number of seconds, a text such as "30s", or a timedelta. None unsets a field: its value then comes from
        the layers below, which are the declaration of the kind's handler, and the defaults. If keys are enrolled, only a process
        with a server's or an operator's key can lower `signed`.
        """
        scope, name = _target("set_policy", kind, tier)
        changes = policies.read_fields(fields)

        def work(session: Session) -> None:
            book = self._books.current(session)
            known = session.settings_of(scope, name)
            layer = policies.change_settings(known, changes)
            if layer != known:
                self._put(session, book, scope, name, layer)

        self._set("set_policy", (scope, name, changes), request_id, actor, work)

    def unset_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        declared: bool = False,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> None:
        """Remove all fields that were set for a kind or a tier.

        With `declared`, remove instead the declaration of the kind's handler. Use this for a kind that has no handler any more.
        """
        scope, name = _target("unset_policy", kind, tier)
        if validate.switch("declared", declared) and scope == "tier":
            raise ValidationError("only a kind has a declaration", field="declared")

        def work(session: Session) -> None:
            book = self._books.current(session)
            if declared:
                self._declare(session, book, name, None)
            else:
                self._put(session, book, scope, name, NO_SETTINGS)

        self._set("unset_policy", (scope, name, declared), request_id, actor, work)

    def declare_policy(
        self,
        kind: str,
        *,
        queue: str = "default",
        limits: Mapping[str, int] | Sequence[str] = (),
        requires: Sequence[str] = (),
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Declare the queue, the policy fields, and the limits and labels of jobs that a kind's handler has.

        This replaces the whole previous declaration. Fields that operators set for the kind override declared ones. The limits
        need not exist. Workers call this when they start, for each kind whose declaration differs.
        """
        validate.unreserved_name("kind", check_name("kind", kind))
        check_name("queue", queue)
        layer = policies.read_settings(fields)
        flow = DeclaredFlow(
            limits={draw.limit: draw.units for draw in validate.draws(limits)},
            requires=validate.labels("requires", requires, LABELS_REQUIRED_MAX),
        )
        who = validate.actor(actor, Role.OPERATOR, self._actor)

        def work(session: Session) -> None:
            book = self._books.current(session)
            self._declare(session, book, kind, Declaration(kind, queue, layer, flow, session.now(), who.name))

        self._set("declare_policy", (kind, queue, layer, flow), request_id, who, work)

    def _put(self, session: Session, book: KeyBook, scope: Scope, name: str, layer: Settings) -> None:
        """Save the settings. The key book is read before the settings are locked: every transaction uses this order."""
        before = session.settings_of(scope, name)
        declared = session.settings_of("handler", name) if scope == "kind" else NO_SETTINGS
        after = policies.merge_settings(declared, layer)
        self._check_signed(book, scope, name, policies.merge_settings(declared, before), after)
        session.set_settings(scope, name, None if layer == NO_SETTINGS else layer)

    def _declare(self, session: Session, book: KeyBook, kind: str, found: Declaration | None) -> None:
        by_operator, before = session.settings_of("kind", kind), session.settings_of("handler", kind)
        after = policies.merge_settings(NO_SETTINGS if found is None else found.settings, by_operator)
        self._check_signed(book, "kind", kind, policies.merge_settings(before, by_operator), after)
        if found is None:
            session.drop_declaration(kind)
        else:
            session.declare(found)

    def _check_signed(self, book: KeyBook, scope: Scope, name: str, before: Settings, after: Settings) -> None:
        if not policies.lowers_signed(before, after) or not book:
            return
        if self.ring.voucher(book, self._actor, KeyRole.OPERATOR) is None:
            raise Forbidden(
                f"this process has no key that may lower signed= of {scope} {name!r}",
                action="Keep signed= as it is, or open the ledger with a valid key of a server or an operator (keys=, --key).",
                **{scope: name},
            )

    # Reading

    def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the fields that operators set for each kind and each tier, durations in milliseconds (`lease_ttl_ms`)."""
        found: dict[str, dict[str, dict[str, Any]]] = {"kind": {}, "tier": {}}
        for scope, name, layer in self._store.read_statement(lambda session: session.all_settings()):
            found[scope][name] = msgspec.to_builtins(layer)
        return found

    def policy_sources(self, kind: str | None = None, *, tier: str | None = None) -> list[SourcedField]:
        """Return every field of the policy of a job of this kind and tier, each with the layer that its value comes from."""
        if kind is not None:
            check_name("kind", kind)
        if tier is not None:
            check_name("tier", tier)

        def look(session: Session) -> list[SourcedField]:
            found = {(scope, name): layer for scope, name, layer in session.all_settings()}
            declared = {one.kind: one.settings for one in session.declarations()}
            by_kind = found.get(("kind", kind or ""), NO_SETTINGS)
            by_tier = found.get(("tier", tier or ""), NO_SETTINGS)
            return policies.source_fields(tier, declared.get(kind or "", NO_SETTINGS), by_kind, by_tier)

        return self._store.read(look)

    def policy_of(self, job_id: int) -> Policy:
        """Return the policy that a lease on this job would have if it were issued now."""
        job_id = validate.job_id(job_id)
        return self._store.read(lambda session: session.policy_of(session.load_one(job_id)))


def _target(verb: str, kind: Any, tier: Any) -> tuple[Scope, str]:
    if (kind is None) == (tier is None):
        raise ValidationError(f"{verb} takes a kind or a tier", field="kind")
    if kind is None:
        return "tier", check_name("tier", tier)
    return "kind", check_name("kind", kind)
