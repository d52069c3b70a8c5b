"""Routes on keys, and on the sealed log."""

from typing import Any

import msgspec

from holdfast.ledger import KeyRecord
from holdfast.ledger.verbs.proofs import Inclusion, TreeHead
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route


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
