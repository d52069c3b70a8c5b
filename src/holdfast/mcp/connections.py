"""Connections to the MCP server: how many there are, and how long a client may take to send a request.

A connection on which no request is under way can be given up: its client has said nothing yet, or has been answered. Where
there are too many connections, the one that has waited longest is closed for a new one. So connections that are opened and
left alone, or whose requests come a byte at a time, keep nobody else out.
"""

import asyncio
import resource
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.core import limits

FILES_RESERVED = 128
"""Descriptors that are left for the ledger, where the system permits few."""
_CLOSE = (b"connection", b"close")


def connections_max() -> int:
    """How many connections there may be: the limit, or fewer where the system permits fewer open files."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.MCP_CONNECTIONS_MAX if most < 0 else max(2, min(limits.MCP_CONNECTIONS_MAX, most - FILES_RESERVED))


class Connection(H11Protocol):
    """A connection with a time limit for each part of a request. Subclass it for each server."""

    most: ClassVar[int]
    waiting: ClassVar[dict["Connection", None]]
    """Connections without a request under way, the one that has waited longest first."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most:
            next(iter(self.waiting)).refuse(503, "Too many connections. Try again.")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None, 0)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Limit the time for what the client has to send next."""
        if self.transport.is_closing():
            self._await(None, 0)
        elif self.conn.their_state is h11.IDLE:
            self._await("head", limits.MCP_HEAD_MS_MAX)
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("body", limits.MCP_REQUEST_MS_MAX)
        else:
            self._await(None, 0)

    def _await(self, what: str | None, ms_max: int) -> None:
        if what == "head":
            self.waiting.setdefault(self)
        else:
            self.waiting.pop(self, None)
        if what == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = what
        words = f"The {what} of a request has to come within {ms_max // 1_000} s."
        self._deadline = None if what is None else self.loop.call_later(ms_max / 1_000, self.refuse, 408, words)

    def refuse(self, status: int, words: str) -> None:
        """Say why, unless an answer has begun, and close."""
        self._await(None, 0)
        if self.transport.is_closing():
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = words.encode()
            head = h11.Response(
                status_code=status,
                headers=[(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), _CLOSE],
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connection_kind(most: int) -> Any:
    """The protocol of one server, with its own count."""
    return type("ServedConnection", (Connection,), {"most": most, "waiting": {}})
