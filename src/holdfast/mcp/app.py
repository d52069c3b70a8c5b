"""The protocol over HTTP as an ASGI application: sessions, their end, and the end of the server.

The scope of a request has its client (`CLIENT_SCOPE_KEY`), and its rights (`rights.RIGHTS_SCOPE_KEY`) if the server has roles.
Who the client is was checked before.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.mcp.access import SessionAccess
from holdfast.mcp.server import CallerResolver, build_server, new_session_name, quiet_sdk_logger
from holdfast.mcp.sessions import ClientSessions, SessionLeases

IDLE_S = 1_800.0
"""How long jobs are held for a client that sends no request."""


class ShutdownMiddleware:
    """Ends open requests when the server stops: streams at once, calls after `grace_s`."""

    def __init__(self, app: ASGIApp, grace_s: float) -> None:
        self._app = app
        self._grace_s = grace_s
        self._stopping = anyio.Event()

    def close(self) -> None:
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = is_ended = False

        async def watch_send(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun, is_ended = True, message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_on_shutdown, scope["method"], tasks.cancel_scope)
            await self._app(scope, receive, watch_send)
            tasks.cancel_scope.cancel()
        if not self._stopping.is_set() or is_ended:
            return
        if is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await PlainTextResponse("The server is stopping", status_code=503)(scope, receive, send)

    async def _cancel_on_shutdown(self, method: str, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        if method != "GET":
            await anyio.sleep(self._grace_s)
        scope.cancel()


class McpApp:
    """The MCP server for a server that has access control, limits and a log of its own. `run` is its life, in one task."""

    def __init__(self, ledger: Ledger, grace_s: float) -> None:
        quiet_sdk_logger()
        sessions = ClientSessions(ledger, time.monotonic, limits.MCP_SESSIONS_OF_ONE_MAX)
        self._leases = SessionLeases(sessions, IDLE_S, keep=False)
        server = build_server(CallerResolver(sessions, None, None, new_session_name))
        session_s = IDLE_S + limits.LEASE_MS_MAX / 1_000
        self._manager = StreamableHTTPSessionManager(
            server,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the server checks host names
            max_request_body_size=limits.MCP_BODY_BYTES_MAX,
            session_idle_timeout=session_s,
            max_sessions=limits.MCP_SESSIONS_MAX,
        )
        self._shutdown = ShutdownMiddleware(self._manager.handle_request, grace_s)
        end_session = self._leases.end_session
        self._app = SessionAccess(self._shutdown, limits.MCP_SESSIONS_OF_ONE_MAX, session_s, end_session)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Send heartbeats for held jobs until the block ends, then release them."""
        self._leases.__enter__()
        try:
            async with self._manager.run():
                yield
        finally:
            await asyncio.to_thread(self._leases.__exit__, None, None, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def end(self) -> None:
        """End open streams, and calls after their grace."""
        self._shutdown.close()
