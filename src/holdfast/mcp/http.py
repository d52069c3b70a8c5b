"""Streamable HTTP: who may ask at all, and what ends a session."""

import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core import limits
from holdfast.mcp.asks import TTL_S
from holdfast.mcp.server import SESSION_HEADER, session_name

log = logging.getLogger("holdfast.mcp")

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
GRACE_S = 2
"""How long open streams may take to end once the server is told to."""
_OK = 200


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Gate:
    """Lets through who has the token, where there is one."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._expected is not None:
            given = Headers(scope=scope).get("authorization", "").encode("latin-1", errors="replace")
            if not hmac.compare_digest(given, self._expected):
                refused = PlainTextResponse("Unauthorized", status_code=401, headers={"WWW-Authenticate": "Bearer"})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


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
            # Not in line with calls that may be waiting for somebody's lock.
            await anyio.to_thread.run_sync(self._ended, session_name(secret), limiter=anyio.CapacityLimiter(1))


class Listener(uvicorn.Server):
    """Says when it is there, and leaves signals to the program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        log.info("serving MCP", extra={"url": f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"})


def security(host: str, allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    """A browser that was led here by another name than the server's own is turned away."""
    names = [*LOOPBACK, f"[{host}]" if ":" in host else host, *allowed_hosts]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[f"{way}://{form}" for way in ("http", "https") for name in names for form in (name, f"{name}:*")],
    )


def listener(
    server: Server[Any],
    host: str,
    *,
    allowed_hosts: Sequence[str],
    token: str | None,
    idle_s: float,
    ended: Callable[[str], None],
) -> Listener:
    """A session that has not called for `idle_s`, and then for as long as a lease usually lasts, is closed as far as the protocol
    goes."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security(host, allowed_hosts),
        max_request_body_size=limits.MCP_BODY_BYTES_MAX,
        session_idle_timeout=idle_s + TTL_S,
        max_sessions=limits.MCP_SESSIONS_MAX,
    )
    return Listener(
        uvicorn.Config(
            Gate(Farewell(app, ended), token),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
    )


def bound(host: str, port: int) -> socket.socket:
    """Where clients knock. Raises OSError where that is taken, or is no place of this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
