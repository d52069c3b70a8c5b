"""Routes on the ledger itself, and on who the caller is."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.doctor import Diagnosis
from holdfast.server.background import with_services
from holdfast.server.call import Call
from holdfast.server.routes import route
from holdfast.shapes import answer_shape
from holdfast.version import __version__

FEATURES = ("batches", "long-poll", "events", "tasks", "signed-events")
"""What clients may ask of this server. The list only grows."""


class PositionAnswer(msgspec.Struct, frozen=True):
    pos: int
    stable: int
    """No event at or before this position can still be committed."""


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


@route("GET", "/v1/now", "reader", answer=answer_shape("NowAnswer", now=datetime), verb="read")
def now(call: Call) -> Any:
    """Return the ledger's time."""
    return {"now": call.ledger.now()}


@route("GET", "/v1/doctor", "reader", answer=Diagnosis, verb="read")
def doctor(call: Call) -> Any:
    """Examine the ledger. The findings speak of all queues, so a token for some of them does not get them."""
    call.check_scope(None)
    return with_services(call.ledger.diagnose(), call.server.services())


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
