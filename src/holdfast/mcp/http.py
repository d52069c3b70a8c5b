"""Streamable HTTP: what serves it, and what ends a session."""

import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core import limits
from holdfast.mcp.connections import connection_kind, connections_max
from holdfast.mcp.gate import Gate, Names
from holdfast.mcp.server import SESSION_HEADER, session_name

log = logging.getLogger("holdfast.mcp")

PATH = "/mcp"
GRACE_S = 2
"""How long calls may take to end once the server is told to."""
_OK = 200


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Farewell:
    """Notices when a client ends its session."""

    def __init__(self, app: ASGIApp, ended: Callable[[str], None]) -> None:
        self._app = app
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "DELETE":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self._app(scope, receive, watched)
        secret = Headers(scope=scope).get(SESSION_HEADER)
        if status == _OK and secret is not None:
            self._ended(session_name(secret))


class Closing:
    """Ends what is open once the server is told to end: streams at once, calls when they have had GRACE_S."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._told = anyio.Event()

    def close(self) -> None:
        self._told.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_begun = is_ended = False

        async def watched(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun, is_ended = True, message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cut, scope["method"], tasks.cancel_scope)
            await self._app(scope, receive, watched)
            tasks.cancel_scope.cancel()
        if not self._told.is_set() or is_ended:
            return
        if is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await PlainTextResponse("The server is ending", status_code=503)(scope, receive, send)

    async def _cut(self, method: str, scope: anyio.CancelScope) -> None:
        await self._told.wait()
        if method != "GET":
            await anyio.sleep(GRACE_S)
        scope.cancel()


class Listener(uvicorn.Server):
    """Says when it is there, and leaves signals to the program."""

    def __init__(self, config: uvicorn.Config, closing: Closing) -> None:
        super().__init__(config)
        self._closing = closing

    def stop(self) -> None:
        self.should_exit = True
        self._closing.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        log.info("serving MCP", extra={"url": f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"})


def listener(
    server: Server[Any],
    host: str,
    *,
    allowed_hosts: Sequence[str],
    tokens: Sequence[str],
    idle_s: float,
    ended: Callable[[str], None],
) -> Listener:
    """A session that has not called for `idle_s`, and whose leases are over since, is closed as far as the protocol goes."""
    session_s = idle_s + limits.LEASE_MS_MAX / 1_000
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the gate compares names whole
        max_request_body_size=limits.MCP_BODY_BYTES_MAX,
        session_idle_timeout=session_s,
        max_sessions=limits.MCP_SESSIONS_MAX,
    )
    closing, most = Closing(Farewell(app, ended)), connections_max()
    requests_max = most * limits.MCP_REQUESTS_MAX // limits.MCP_CONNECTIONS_MAX
    return Listener(
        uvicorn.Config(
            Gate(closing, Names(host, allowed_hosts), tokens, requests_max, session_s),
            http=connection_kind(most),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GRACE_S + 1,
        ),
        closing,
    )


def bound(host: str, port: int) -> socket.socket:
    """Where clients knock. Raises OSError where that is taken, or is no place of this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
