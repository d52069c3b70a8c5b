"""Access control of the HTTP transport: host names, bearer tokens, and limits for each client."""

import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core import limits
from holdfast.core.hosts import AllowedHosts
from holdfast.mcp.rights import CLIENT_SCOPE_KEY
from holdfast.mcp.server import SESSION_HEADER

log = logging.getLogger("holdfast.mcp")

RETRY_HEADERS = {"Retry-After": "1"}
REFUSALS_S = 60.0
"""The period in which at most MCP_REFUSALS_LOGGED_MAX refused tokens are logged."""
_BAD_REQUEST, _UNAUTHORIZED, _NOT_FOUND, _OK = 400, 401, 404, 200


class TransportSessions:
    """The open sessions and their clients. A session can be used only with the token that opened it."""

    def __init__(self, most: int, idle_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._idle_s, self._monotonic = most, idle_s, monotonic
        self._clients: dict[str, Hashable] = {}
        self._used_at: dict[str, float] = {}
        """When the last request of each session ended. A session with a request under way has no entry."""
        self._under_way: Counter[str] = Counter()
        self._opening: Counter[Hashable] = Counter()

    def belongs_to_another(self, secret: str, client: Hashable) -> bool:
        return self._clients.get(secret, client) != client

    def has_capacity(self, client: Hashable) -> bool:
        """End the sessions that were idle for too long. Return whether the client may open another session."""
        now = self._monotonic()
        for secret in [secret for secret, at in self._used_at.items() if now - at > self._idle_s]:
            self.end(secret)
        return self._opening[client] + sum(owner == client for owner in self._clients.values()) < self._most

    def begin(self, secret: str | None, client: Hashable) -> None:
        """Record the start of a request. `secret` is its session id, None if it may open a session."""
        if secret is None:
            self._opening[client] += 1
        else:
            self._under_way[secret] += 1
            self._used_at.pop(secret, None)

    def done(self, secret: str | None, client: Hashable, opened: str | None) -> None:
        """Record the end of a request. `opened` is the id of the session that it has opened, if any."""
        if secret is None:
            self._opening[client] -= 1
            if opened is not None:
                self._clients[opened], self._used_at[opened] = client, self._monotonic()
            return
        self._under_way[secret] -= 1
        if not self._under_way[secret]:
            del self._under_way[secret]
            if secret in self._clients:
                self._used_at[secret] = self._monotonic()

    def end(self, secret: str) -> None:
        self._clients.pop(secret, None)
        self._used_at.pop(secret, None)


class RefusedTokenLog:
    """Logs one line for each refused token, with the peer's address and the reason, never with the token.

    Beyond MCP_REFUSALS_LOGGED_MAX lines a minute, refusals are only counted. The next line has the count in `unlogged`.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since = float("-inf")
        self._logged = self._unlogged = 0

    def note(self, scope: Scope, headers: Headers) -> None:
        now = self._monotonic()
        if now - self._since >= REFUSALS_S:
            self._since, self._logged = now, 0
        if self._logged >= limits.MCP_REFUSALS_LOGGED_MAX:
            self._unlogged += 1
            return
        peer = (scope.get("client") or ("unknown",))[0]
        log.warning("refused a token", extra={"peer": peer, "reason": _refusal_reason(headers), "unlogged": self._unlogged})
        self._logged, self._unlogged = self._logged + 1, 0


def _refusal_reason(headers: Headers) -> str:
    given = headers.get("authorization")
    if given is None:
        return "no Authorization header"
    return "unknown token" if given.partition(" ")[0].lower() == "bearer" else "not a Bearer token"


class SessionAccess:
    """Passes a request on if its client may use its session, or open another one. The scope has the client."""

    def __init__(self, app: ASGIApp, most: int, session_s: float) -> None:
        self._app = app
        self._most = most
        self._sessions = TransportSessions(most, session_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, client = Headers(scope=scope), scope[CLIENT_SCOPE_KEY]
        refused = self._check(scope, headers, client)
        await (self._forward(scope, receive, send, headers, client) if refused is None else refused(scope, receive, send))

    def _check(self, scope: Scope, headers: Headers, client: Hashable) -> PlainTextResponse | None:
        secret = headers.get(SESSION_HEADER)
        if secret is not None and self._sessions.belongs_to_another(secret, client):
            return PlainTextResponse("Session not found", status_code=404)
        if secret is None and _may_open_session(scope, headers) and not self._sessions.has_capacity(client):
            text = f"Too many sessions: at most {self._most} may be open for this client. End some with DELETE."
            return PlainTextResponse(text, status_code=429, headers=RETRY_HEADERS)
        return None

    async def _forward(self, scope: Scope, receive: Receive, send: Send, headers: Headers, client: Hashable) -> None:
        secret = headers.get(SESSION_HEADER)
        uses_session = secret is not None or _may_open_session(scope, headers)
        status, is_counted = 0, uses_session

        async def watch_send(message: Message) -> None:
            nonlocal status, is_counted
            if message["type"] == "http.response.start":
                status = message["status"]
                opened = Headers(raw=message["headers"]).get(SESSION_HEADER) if status < _BAD_REQUEST else None
                if is_counted and secret is None and opened is not None:
                    # The session has its client before anyone can know its id.
                    self._sessions.done(None, client, opened)
                    is_counted = False
            await send(message)

        if uses_session:
            self._sessions.begin(secret, client)
        try:
            await self._app(scope, receive, watch_send)
        finally:
            if is_counted:
                self._sessions.done(secret, client, None)
            if secret is not None and (status == _NOT_FOUND or (scope["method"] == "DELETE" and status == _OK)):
                self._sessions.end(secret)


class AccessControl:
    """Passes a request on if its host is allowed, its token is valid (if there are tokens) and its client is within its share."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, tokens: Sequence[str], requests_max: int) -> None:
        self._app = app
        self._hosts = hosts
        self._tokens = [token.encode() for token in tokens]
        self._requests_max = requests_max
        self._under_way: Counter[int] = Counter()
        self._refusals = RefusedTokenLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client = self._client_of(headers)
        refused = self._check_host(headers) or self._check_client(client)
        if refused is not None:
            if refused.status_code == _UNAUTHORIZED:
                self._refusals.note(scope, headers)
            await refused(scope, receive, send)
            return
        assert client is not None
        scope[CLIENT_SCOPE_KEY] = client
        self._under_way[client] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way[client] -= 1

    def _check_host(self, headers: Headers) -> PlainTextResponse | None:
        """Refuse a request that uses another host name than the server's: it may come from a browser after DNS rebinding."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._hosts.allows(hosts[0]):
            return PlainTextResponse("Invalid Host header: the server has another name. See --allow-host.", status_code=421)
        if len(origins) > 1 or not all(map(self._hosts.allows_origin, origins)):
            return PlainTextResponse("Invalid Origin header: pages from there may not call this server.", status_code=403)
        return None

    def _client_of(self, headers: Headers) -> int | None:
        """Return the index of the request's token, 0 if the server has no tokens, None if the token is unknown."""
        if not self._tokens:
            return 0
        scheme, _, token_text = headers.get("authorization", "").partition(" ")
        given = token_text.encode("latin-1", errors="replace")
        matches = [hmac.compare_digest(given, token) for token in self._tokens]  # all of them, so that the time is constant
        return matches.index(True) if scheme.lower() == "bearer" and any(matches) else None

    def _check_client(self, client: int | None) -> PlainTextResponse | None:
        if client is None:
            return PlainTextResponse("Unauthorized", status_code=_UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"})
        if self._under_way[client] >= self._requests_max:
            text = f"Too many requests: at most {self._requests_max} may be under way for this client at once."
            return PlainTextResponse(text, status_code=429, headers=RETRY_HEADERS)
        return None


def _may_open_session(scope: Scope, headers: Headers) -> bool:
    """Return whether a request may open a session. Newer protocol versions, which the request then names, have no sessions."""
    if scope["method"] != "POST" or headers.get(SESSION_HEADER) is not None:
        return False
    return headers.get("mcp-protocol-version", "") in ("", *HANDSHAKE_PROTOCOL_VERSIONS)
