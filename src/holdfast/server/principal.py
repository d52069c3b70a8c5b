"""Who calls, and what the caller may do: roles, queues, and the actor of what a call changes. Pure rules."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core.access import ANY, AccessRole, matches_any
from holdfast.core.model import Actor, Role
from holdfast.errors import Forbidden, ValidationError
from holdfast.ledger import SessionRecord, TokenRecord

Least = Literal["none", "any", "reader", "client", "client_or_worker", "worker", "operator", "admin"]
"""What a route asks for: nothing, `any` valid token, or a role. `client_or_worker` is for enqueueing."""

_R = AccessRole
ALLOWED: Mapping[Least, frozenset[AccessRole]] = {
    "none": frozenset(_R),
    "any": frozenset(_R),
    "reader": frozenset(_R),
    "client": frozenset({_R.CLIENT, _R.OPERATOR, _R.ADMIN}),
    "client_or_worker": frozenset({_R.CLIENT, _R.WORKER, _R.OPERATOR, _R.ADMIN}),
    "worker": frozenset({_R.WORKER, _R.OPERATOR, _R.ADMIN}),
    "operator": frozenset({_R.OPERATOR, _R.ADMIN}),
    "admin": frozenset({_R.ADMIN}),
}
"""The roles that may use a route. A worker's routes also want an actor that is a worker: operators act as one by `act_as`."""

_ACTOR_ROLES: Mapping[AccessRole, Role] = {
    _R.CLIENT: Role.CLIENT,
    _R.WORKER: Role.WORKER,
    _R.OPERATOR: Role.OPERATOR,
    _R.ADMIN: Role.OPERATOR,
}
INCARNATION = "http"
"""The incarnation of a worker that names none."""
ACTOR_HEADER, INCARNATION_HEADER = "Holdfast-Actor", "Holdfast-Incarnation"


class Principal(msgspec.Struct, frozen=True):
    """The caller of a request: a token, a person with a session, or an anonymous client."""

    name: str
    role: AccessRole
    queues: tuple[str, ...] = (ANY,)
    act_as: tuple[str, ...] = ()
    token_id: str | None = None
    """None for a person whom an identity provider has signed in."""
    expires_at: datetime | None = None
    session: str | None = None
    """The secret of the browser session that the request belongs to."""
    peer: str | None = None
    """The address of a caller without a valid token or session. Such a caller is anonymous."""

    def __repr__(self) -> str:
        return f"<Principal {self.role_name} {self.name!r}>"

    @property
    def is_anonymous(self) -> bool:
        return self.peer is not None

    @property
    def role_name(self) -> str | None:
        """The role, for logs. None for an anonymous caller."""
        return None if self.is_anonymous else self.role.value

    @property
    def key(self) -> str:
        """The name by which the limits of this caller are counted."""
        if self.peer is not None:
            return f"peer:{self.peer}"
        return f"person:{self.name}" if self.token_id is None else self.token_id

    @property
    def sees_all(self) -> bool:
        return ANY in self.queues

    def sees(self, queue: str) -> bool:
        """Return whether the caller may see and use this queue. Everything in other queues does not exist for it."""
        return self.sees_all or matches_any(self.queues, queue)

    def may(self, least: Least) -> bool:
        """Return whether the caller's role may use a route. An anonymous caller may use only routes that ask for nothing."""
        return least == "none" if self.is_anonymous else self.role in ALLOWED[least]

    def check_role(self, least: Least, verb: str, done: str) -> None:
        """Raise Forbidden if the caller's role may not use a route. `done` is what the route does, for the message."""
        if self.may(least):
            return
        allowed = [role.value for role in AccessRole if role in ALLOWED[least]]
        raise Forbidden(
            f"a token with the role {self.role_name} does not allow this: {done}",
            verb=verb,
            allowed=allowed,
            action=f"Use a token with the role {' or '.join(allowed)}.",
        )

    def can(self, routes: Iterable[tuple[str, Least]]) -> list[str]:
        """Return the verbs that the caller may use, of pairs of a verb and what its route asks for."""
        return sorted({verb for verb, least in routes if least != "none" and self.may(least)})

    def may_act_as(self, role: Role, name: str) -> bool:
        """Return whether the caller is this actor, or a pattern of `act_as` allows it."""
        own = None if self.is_anonymous else _ACTOR_ROLES.get(self.role)
        return (role, name) == (own, self.name) or matches_any(self.act_as, f"{role.value}:{name}")

    def actor(self, incarnation: str | None = None, wanted: str | None = None) -> Actor | None:
        """Return the actor of what the caller changes. None for a reader, which changes nothing.

        `incarnation` is the header Holdfast-Incarnation. `wanted` is the header Holdfast-Actor, such as `operator:kim` or
        `worker:arm-7#boot3`: raise Forbidden unless a pattern of `act_as` allows it. Patterns are compared without incarnation.
        """
        started = check_incarnation(incarnation)
        role = None if self.is_anonymous else _ACTOR_ROLES.get(self.role)
        own = None if role is None else Actor(role, self.name, started if role is Role.WORKER else "")
        if wanted is None:
            return own
        actor = parse_actor(wanted, started)
        if not self.may_act_as(actor.role, actor.name):
            raise Forbidden(
                f"this token may not act as {actor.role.value} {actor.name!r:.80}",
                action=f"Leave out {ACTOR_HEADER}, or create a token whose act_as allows this actor.",
                allowed=list(self.act_as),
            )
        return actor


def token_principal(token: TokenRecord) -> Principal:
    return Principal(token.name, token.role, token.queues, token.act_as, token.id, token.expires_at)


def session_principal(session: SessionRecord, secret: str) -> Principal:
    return Principal(session.name, session.role, session.queues, session.act_as, session.token_id, session.expires_at, secret)


def anonymous(peer: str) -> Principal:
    """Return the caller of a request without a valid token or session. It sees no queue and has no role."""
    return Principal("", AccessRole.READER, queues=(), peer=peer)


def check_incarnation(given: str | None) -> str:
    """Return the incarnation of the header, or the default."""
    if given is None:
        return INCARNATION
    if "#" in limits.check_name(INCARNATION_HEADER, given):
        raise ValidationError("an incarnation must not contain #, which separates it from the name", field=INCARNATION_HEADER)
    return given


def parse_actor(text: Any, incarnation: str) -> Actor:
    """Return the actor of ROLE:NAME, or of worker:NAME#INCARNATION. Without an incarnation, a worker has the given one."""
    role, _, rest = limits.check_key(ACTOR_HEADER, text).partition(":")
    if role not in (Role.CLIENT, Role.WORKER, Role.OPERATOR):
        raise ValidationError("an actor is client:NAME, operator:NAME or worker:NAME#INCARNATION", field=ACTOR_HEADER)
    if role != Role.WORKER:
        return Actor(Role(role), limits.check_name(ACTOR_HEADER, rest))
    name, separator, started = rest.rpartition("#")
    if not separator:
        name, started = rest, incarnation
    return Actor(Role.WORKER, limits.check_name(ACTOR_HEADER, name), limits.check_name(ACTOR_HEADER, started))
