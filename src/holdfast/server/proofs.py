"""Routes on keys, and on the sealed log."""

from typing import Any

from holdfast.ledger import KeyRecord
from holdfast.ledger.verbs.proofs import Inclusion, TreeHead
from holdfast.server import bodies as b
from holdfast.server.call import Call
from holdfast.server.routes import Nothing, route
from holdfast.shapes import answer_shape

OneKey = answer_shape("OneKey", key=KeyRecord)


class KeyBody(b.Body, frozen=True):
    public: str
    role: str
    name: str


class RotateBody(b.Body, frozen=True):
    public: str


@route("GET", "/v1/keys", "reader", answer=answer_shape("KeysAnswer", keys=list[KeyRecord]), verb="read")
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


@route("GET", "/v1/head", "reader", answer=answer_shape("HeadAnswer", head=TreeHead | None), verb="read")
def head(call: Call) -> Any:
    """Return the newest signed head of the sealed log."""
    return {"head": call.ledger.head()}


@route("GET", "/v1/heads", "reader", query=b.PageQuery, answer=answer_shape("HeadsAnswer", heads=list[TreeHead]), verb="read")
def heads(call: Call) -> Any:
    """List the signed heads of the sealed log."""
    return {"heads": call.ledger.heads(after=call.query.after, limit=call.query.limit)}


@route("GET", "/v1/jobs/{job_id}/inclusion", "reader", answer=Inclusion, verb="read")
def inclusion(call: Call) -> Any:
    """Return a job's events with proofs that they are in the sealed log."""
    return call.ledger.inclusion(call.check_visible())
