"""Streamable HTTP transport: connections, listening, shutdown."""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import h11
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.core import limits
from holdfast.core.hosts import AllowedHosts
from holdfast.mcp.access import AccessControl, SessionAccess
from holdfast.mcp.app import GRACE_S, PATH, SessionEndNotifier, ShutdownMiddleware

RESERVED_FILES = 128
"""File descriptors reserved for the ledger if the system's limit is low."""
_CLOSE = (b"connection", b"close")


def connections_max() -> int:
    """Return the limit of connections: MCP_CONNECTIONS_MAX, or fewer if the system permits fewer open files."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.MCP_CONNECTIONS_MAX if most < 0 else max(2, min(limits.MCP_CONNECTIONS_MAX, most - RESERVED_FILES))


class LimitedConnection(H11Protocol):
    """A connection with a time limit for each part of a request. Subclass it for each server."""

    connections_max: ClassVar[int]
    waiting: ClassVar[dict["LimitedConnection", None]]
    """Connections without a request under way, the longest waiting first."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited_part: str | None = None
    """The part of a request that has to arrive before `_deadline`: its head or its body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_time()
        if len(self.connections) > self.connections_max:
            next(iter(self.waiting)).refuse(503, "Too many connections. Try again.")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None, 0)
        super().connection_lost(exc)

    def _limit_time(self) -> None:
        """Set the deadline for the part that the client has to send next."""
        if self.transport.is_closing():
            self._set_deadline(None, 0)
        elif self.conn.their_state is h11.IDLE:
            self._set_deadline("head", limits.MCP_HEAD_MS_MAX)
        elif self.conn.their_state is h11.SEND_BODY:
            self._set_deadline("body", limits.MCP_REQUEST_MS_MAX)
        else:
            self._set_deadline(None, 0)

    def _set_deadline(self, what: str | None, ms_max: int) -> None:
        if what == "head":
            self.waiting.setdefault(self)
        else:
            self.waiting.pop(self, None)
        if what == self._awaited_part:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited_part = what
        text = f"The {what} of a request has to come within {ms_max // 1_000} s."
        self._deadline = None if what is None else self.loop.call_later(ms_max / 1_000, self.refuse, 408, text)

    def refuse(self, status: int, text: str) -> None:
        """Send an error response, unless a response has been started, and close the connection."""
        self._set_deadline(None, 0)
        if self.transport.is_closing():
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = text.encode()
            head = h11.Response(
                status_code=status,
                headers=[(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), _CLOSE],
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connection_class(most: int) -> Any:
    """Return a protocol class for one server, with its own count of connections."""
    return type("ServedConnection", (LimitedConnection,), {"connections_max": most, "waiting": {}})


log = logging.getLogger("holdfast.mcp")


class HttpServer(uvicorn.Server):
    """A uvicorn server that logs its address when it has started and leaves signals to the program."""

    def __init__(self, config: uvicorn.Config, shutdown: ShutdownMiddleware) -> None:
        super().__init__(config)
        self._shutdown = shutdown

    def stop(self) -> None:
        self.should_exit = True
        self._shutdown.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        log.info("serving MCP", extra={"url": f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"})


def build_http_server(
    server: Server[Any],
    host: str,
    *,
    allowed_hosts: Sequence[str],
    tokens: Sequence[str],
    idle_s: float,
    on_session_end: Callable[[str], None],
) -> HttpServer:
    """Return the HTTP server. It closes a protocol session that has been idle for `idle_s` plus the longest lease."""
    session_s = idle_s + limits.LEASE_MS_MAX / 1_000
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # AccessControl checks host names
        max_request_body_size=limits.MCP_BODY_BYTES_MAX,
        session_idle_timeout=session_s,
        max_sessions=limits.MCP_SESSIONS_MAX,
    )
    shutdown, most = ShutdownMiddleware(SessionEndNotifier(app, on_session_end)), connections_max()
    requests_max, share = most * limits.MCP_REQUESTS_MAX // limits.MCP_CONNECTIONS_MAX, max(1, len(tokens))
    sessions = SessionAccess(shutdown, max(1, limits.MCP_SESSIONS_MAX // share), session_s)
    return HttpServer(
        uvicorn.Config(
            AccessControl(sessions, AllowedHosts(host, allowed_hosts), tokens, max(1, requests_max // share)),
            http=connection_class(most),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=int(GRACE_S) + 1,
        ),
        shutdown,
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise OSError if the address is in use or not one of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
