"""Routes on tokens and browser sessions, and of the server itself."""

from functools import cache
from typing import Any

import msgspec

from holdfast.core.access import AccessRole
from holdfast.errors import NotFound, Unauthenticated, ValidationError
from holdfast.ledger.verbs.access import TokenRecord
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.openapi import document, error_classes
from holdfast.server.routes import ROUTES, route
from holdfast.shapes import answer_shape
from holdfast.watch.prometheus import CONTENT_TYPE, render


class TokenBody(b.Body, frozen=True):
    role: AccessRole
    name: str
    queues: tuple[str, ...] = ("*",)
    act_as: tuple[str, ...] = ()
    expires: b.Duration | None = None


class CreatedToken(msgspec.Struct, frozen=True):
    token: TokenRecord
    text: str
    """The token as its owner sends it. It is shown only here."""


TokensAnswer = answer_shape("TokensAnswer", tokens=list[TokenRecord], next_after=str | None)


@route("POST", "/v1/tokens", "admin", body=TokenBody, answer=CreatedToken, status=201, verb="tokens")
def new_token(call: Call) -> Any:
    """Make a token. Its text is only in this answer."""
    body = call.body
    made = call.ledger.new_token(
        body.role, body.name, queues=body.queues, act_as=body.act_as, expires=body.expires, actor=call.actor
    )
    return {"token": made.token, "text": made.text}


@route("GET", "/v1/tokens", "admin", query=b.NameQuery, answer=TokensAnswer, verb="tokens")
def tokens(call: Call) -> Any:
    """List tokens, without their secrets."""
    found = call.ledger.tokens(after=call.query.after, limit=call.query.limit)
    return {"tokens": found, "next_after": found[-1].id if len(found) == call.query.limit else None}


@route("DELETE", "/v1/tokens/{token_id}", "admin", answer=answer_shape("OneToken", token=TokenRecord), verb="tokens")
def revoke_token(call: Call) -> Any:
    """Revoke a token, and end its sessions."""
    revoked = call.ledger.revoke_token(call.parameters["token_id"], actor=call.actor)
    call.server.access.forget_tokens()
    return {"token": revoked}


class SessionBody(b.Body, frozen=True):
    """One of the two."""

    code: str | None = None
    token: str | None = None


@route("POST", "/v1/session", "none", body=SessionBody, answer=None, status=204, verb="session")
def begin_session(call: Call) -> Reply:
    """Begin a browser session with a one-time code or a token. The cookie of the answer is the session."""
    body = call.body
    if (body.code is None) == (body.token is None):
        raise ValidationError("a session begins with a code or a token", field="code")
    call.server.access.check_wrong(call.exchange.peer)
    secret: str | None
    if body.code is not None:
        secret = call.ledger.log_in(body.code)
    else:
        found = call.ledger.find_token(body.token or "")
        secret = None if found is None else call.ledger.new_session(found.id)
    if secret is None:
        call.server.access.note_wrong(call.exchange.peer)
        raise Unauthenticated("this code or token is not valid", action="Take a new link, or another token.")
    return Reply(None, 204, cookies=(call.server.access.session_cookie(secret),))


@route("DELETE", "/v1/session", "any", answer=None, status=204, verb="session")
def end_session(call: Call) -> Reply:
    """End the browser session."""
    if call.principal.session is not None:
        call.ledger.end_session(call.principal.session)
    return Reply(None, 204, cookies=(call.server.access.session_cookie(""),))


# The server itself


class Readiness(msgspec.Struct, frozen=True):
    status: str
    services: dict[str, str]
    """What each service of this server does: `active`, `standby`, `failing` or `off`. None of them makes it unready."""


@route("GET", "/healthz", "none", answer=answer_shape("Health", status=str), verb="health", awaits=True)
async def health(call: Call) -> Any:
    """Say that the process runs. The store is not asked."""
    return {"status": "ok"}


@route("GET", "/readyz", "none", answer=Readiness, verb="health")
def ready(call: Call) -> Any:
    """Say whether requests can be served."""
    call.server.check_ready()
    return {"status": "ok", "services": {name: found.state for name, found in call.server.services().items()}}


@route("GET", "/openapi.json", "none", answer=dict, verb="health")
def openapi(call: Call) -> Any:
    """Return the OpenAPI document of this server."""
    return Reply(_document_bytes())


@cache
def _document_bytes() -> bytes:
    """Return the document as JSON. It does not change while the server runs, and anyone may ask for it."""
    return msgspec.json.encode(document(ROUTES))


@route("GET", "/problems/{code}", "none", answer=dict, verb="health")
def problem_page(call: Call) -> Any:
    """Explain an error code."""
    kind = error_classes().get(call.parameters["code"])
    if kind is None:
        raise NotFound("there is no such error code")
    return {
        "code": kind.code,
        "status": kind.http_status,
        "retryable": kind.retryable,
        "fault": kind.fault,
        "meaning": " ".join((kind.__doc__ or "").split()),
        "action": kind.action,
    }


@route("GET", "/metrics", "reader", answer=None, verb="read", media=(CONTENT_TYPE,))
def metrics(call: Call) -> Reply:
    """Return the counts of this ledger for Prometheus. They are of all queues, so a token for some of them does not get them."""
    call.check_scope(None)
    return Reply(render(call.ledger, call.server.metrics.collect), headers={"Content-Type": CONTENT_TYPE})
