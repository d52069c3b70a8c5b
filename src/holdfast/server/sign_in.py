"""Routes of sign-in: persons come by an OpenID Connect provider, and leave again.

The requests to the provider have threads of their own: a slow provider delays no other request. A browser shows the answers, so
they are pages, also where a sign-in fails.
"""

import html
import logging
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.core import limits
from holdfast.core.access import AccessRole
from holdfast.errors import HoldfastError, NotFound, Unauthenticated
from holdfast.server.call import Call, Reply
from holdfast.server.credentials import read_cookie
from holdfast.server.pages import DOCUMENT_HEADERS, VERSION_MARK
from holdfast.server.problems import retry_after
from holdfast.server.routes import CALLBACK_PATH, LOGIN_PATH, route

log = logging.getLogger("holdfast.server")

SECURE_COOKIE, PLAIN_COOKIE = "__Host-holdfast-login", "holdfast-login"
_HTML = "text/html; charset=utf-8"
_HEAD = (
    b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Holdfast</title>'
    b'<meta name="viewport" content="width=device-width, initial-scale=1">'
    b'<link rel="stylesheet" href="/assets/@VERSION@/css/base.css">'
)
CALLBACK_PAGE = (
    _HEAD + b'<script src="/assets/@VERSION@/js/signed-in.js"></script></head>'
    b'<body><main><h1>Signed in</h1><p><a href="/">Continue</a></p></main></body></html>'
)
"""The answer to a callback. A redirect would still count as coming from the provider, and the strict cookie would not be sent.

Its script goes on with location.replace, so that the address with the code does not stay in the browser's history.
"""
REFUSAL_PAGE = (
    _HEAD + b"</head><body><main><h1>Not signed in</h1><p>@REASON@</p><p>@ACTION@</p>"
    b'<p><a href="/auth/login">Sign in again</a> or <a href="/">go to the start</a>.</p></main></body></html>'
)


class SignedInPerson(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> AccessRole: ...


class PersonProvider(Protocol):
    """The requests to an identity provider. `oidc.OidcClient` has them. All of them block."""

    def begin(self) -> tuple[str, str]: ...
    def finish(self, query: dict[str, str], cookie: str | None) -> SignedInPerson: ...
    def end_address(self) -> str | None: ...


class SignIn(NamedTuple):
    """How persons sign in to a server."""

    provider: PersonProvider
    label: str
    """The name of the provider for people."""
    origin: str
    """The origin of the server's public address. The provider sends browsers back to it, so the cookie has to be there."""
    secure: bool

    @property
    def cookie_name(self) -> str:
        return SECURE_COOKIE if self.secure else PLAIN_COOKIE

    def set_cookie(self, value: str) -> str:
        """Return the Set-Cookie header of the login cookie. Empty deletes it. It is Lax: the browser comes from another site."""
        age = limits.LOGIN_CODE_MS // 1_000 if value else 0
        return f"{self.cookie_name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{'; Secure' if self.secure else ''}"


class SignInOptions(msgspec.Struct, frozen=True):
    provider: str | None
    """The name of the identity provider; null if there is none, so that a token is needed."""


class SignedOut(msgspec.Struct, frozen=True):
    provider: str | None
    """Where the person can end the session at the provider too; null if there is no such address."""


class CallbackQuery(msgspec.Struct, frozen=True):
    """What a provider sends back. Providers add parameters of their own, which are ignored."""

    code: str = ""
    state: str = ""
    iss: str = ""
    error: str = ""


@route("GET", "/auth/options", "none", answer=SignInOptions, verb="session", awaits=True)
async def sign_in_options(call: Call) -> Any:
    """Say how persons can sign in."""
    way: SignIn | None = call.server.sign_in
    return {"provider": None if way is None else way.label}


@route("GET", LOGIN_PATH, "none", answer=None, status=302, verb="session", awaits=True)
async def begin_sign_in(call: Call) -> Reply:
    """Send the browser to the identity provider."""
    way = _configured(call)
    host = (call.exchange.headers.get("host") or "").lower()
    if host != urlsplit(way.origin).netloc:
        # The provider sends the browser back to the public address only, and the cookie has to be there.
        return Reply(None, 302, {"Location": way.origin + LOGIN_PATH})
    try:
        address, cookie = await call.server.pools["provider"].call(way.provider.begin)
    except HoldfastError as error:
        return _refusal(call, way, error)
    return Reply(None, 302, {"Location": address}, (way.set_cookie(cookie),))


@route("GET", CALLBACK_PATH, "none", query=CallbackQuery, answer=None, verb="session", awaits=True)
async def finish_sign_in(call: Call) -> Reply:
    """Begin a session of the person whom the identity provider has signed in."""
    way, server = _configured(call), call.server
    given = {name: value for name, value in msgspec.structs.asdict(call.query).items() if value}
    cookie = read_cookie(call.exchange.headers.get("cookie") or "", way.cookie_name)
    try:
        server.access.check_wrong(call.exchange.peer)
        person = await server.pools["provider"].call(partial(way.provider.finish, given, cookie))
        secret = await server.pools["write"].call(partial(call.ledger.new_person_session, person.name, person.role))
    except HoldfastError as error:
        if isinstance(error, Unauthenticated):
            server.access.note_wrong(call.exchange.peer)
        return _refusal(call, way, error)
    record = call.exchange.record
    record.principal, record.role = person.name, person.role.value
    cookies = (server.access.session_cookie(secret), way.set_cookie(""))
    return _page(call, CALLBACK_PAGE, 200, cookies)


@route("POST", "/auth/logout", "any", answer=SignedOut, verb="session", awaits=True)
async def sign_out_person(call: Call) -> Reply:
    """End the browser session, and say where the one at the provider can be ended."""
    who, way, address = call.principal, call.server.sign_in, None
    if who.session is not None:
        await call.server.pools["write"].call(partial(call.ledger.end_session, who.session))
    if way is not None and who.token_id is None:
        try:
            address = await call.server.pools["provider"].call(way.provider.end_address)
        except HoldfastError as error:
            log.warning("the provider's address to sign out is not known", extra={"error": error.message})
    return Reply({"provider": address}, cookies=(call.server.access.session_cookie(""),))


def _configured(call: Call) -> SignIn:
    way: SignIn | None = call.server.sign_in
    if way is None:
        raise NotFound("this server has no identity provider", action="Sign in with a token.")
    return way


def _refusal(call: Call, way: SignIn, error: HoldfastError) -> Reply:
    """Answer a sign-in that failed with a page that says why and what to do. The next one begins anew."""
    log.warning("a sign-in failed", extra={"code": error.code, "reason": error.message})
    call.exchange.record.code = error.code
    body = REFUSAL_PAGE.replace(b"@REASON@", _sentence(error.message)).replace(b"@ACTION@", _sentence(error.action))
    reply = _page(call, body, error.http_status, (way.set_cookie(""),))
    seconds = retry_after(error)
    return reply if seconds is None else reply._replace(headers={**reply.headers, "Retry-After": str(seconds)})


def _page(call: Call, body: bytes, status: int, cookies: tuple[str, ...]) -> Reply:
    version = call.server.pages.version.encode()
    return Reply(body.replace(VERSION_MARK, version), status, {"Content-Type": _HTML, **DOCUMENT_HEADERS}, cookies)


def _sentence(text: str) -> bytes:
    return html.escape(f"{text[:1].upper()}{text[1:].removesuffix('.')}.").encode()
