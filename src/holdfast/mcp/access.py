"""The sessions of the protocol over HTTP: which client has which, and how many one client may open."""

import time
from collections import Counter
from collections.abc import Callable, Hashable

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.mcp.rights import CLIENT_SCOPE_KEY
from holdfast.mcp.server import SESSION_HEADER, session_name

RETRY_HEADERS = {"Retry-After": "1"}
_BAD_REQUEST, _NOT_FOUND, _OK = 400, 404, 200


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


class SessionAccess:
    """Passes a request on if its client may use its session, or open another one. The scope has the client.

    `on_session_end` is called with the name of a session that its client has ended with DELETE.
    """

    def __init__(self, app: ASGIApp, most: int, session_s: float, on_session_end: Callable[[str], None]) -> None:
        self._app = app
        self._most = most
        self._on_session_end = on_session_end
        self._sessions = TransportSessions(most, session_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        is_counted = uses_session

        async def watch_send(message: Message) -> None:
            nonlocal is_counted
            if message["type"] == "http.response.start":
                status = message["status"]
                opened = Headers(raw=message["headers"]).get(SESSION_HEADER) if status < _BAD_REQUEST else None
                if is_counted and secret is None and opened is not None:
                    # The session has its client before anyone can know its id.
                    self._sessions.done(None, client, opened)
                    is_counted = False
                elif secret is not None:
                    self._note_end(scope["method"], status, secret)
            await send(message)

        if uses_session:
            self._sessions.begin(secret, client)
        try:
            await self._app(scope, receive, watch_send)
        finally:
            if is_counted:
                self._sessions.done(secret, client, None)

    def _note_end(self, method: str, status: int, secret: str) -> None:
        """Forget a session if the answer says that it has ended. Its place is free before the client has the answer."""
        if status == _NOT_FOUND:
            self._sessions.end(secret)
        elif method == "DELETE" and status == _OK:
            self._sessions.end(secret)
            self._on_session_end(session_name(secret))


def _may_open_session(scope: Scope, headers: Headers) -> bool:
    """Return whether a request may open a session. Newer protocol versions, which the request then names, have no sessions."""
    if scope["method"] != "POST" or headers.get(SESSION_HEADER) is not None:
        return False
    return headers.get("mcp-protocol-version", "") in ("", *HANDSHAKE_PROTOCOL_VERSIONS)
