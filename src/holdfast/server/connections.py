"""Connections of the HTTP server: limits of the head of a request, and a deadline for each part of it.

uvicorn has no such limits. A client that sends half a request would keep its connection for ever.
"""

import asyncio
import resource
from typing import Any, ClassVar, NamedTuple

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from holdfast.core import limits
from holdfast.errors import HeaderTooLarge, HoldfastError, RequestTimeout, Unavailable, ValidationError
from holdfast.server.problems import PROBLEM_TYPE, problem

RESERVED_FILES = 128
"""File descriptors that are left for the ledger if the system's limit is low."""
MIB = 1_048_576
_encode = msgspec.json.Encoder().encode


class ConnectionLimits(NamedTuple):
    """The limits of one connection, and of all connections of a process. Times are in seconds."""

    head_bytes_max: int = limits.HTTP_HEAD_BYTES_MAX
    headers_max: int = limits.HTTP_HEADERS_MAX
    head_s: float = limits.HTTP_HEAD_MS_MAX / 1_000
    body_s: float = limits.HTTP_BODY_MS_MAX / 1_000
    body_s_per_mib: float = limits.HTTP_BODY_MS_PER_MIB / 1_000
    idle_s: float = limits.HTTP_IDLE_MS_MAX / 1_000
    linger_s: float = limits.HTTP_LINGER_MS_MAX / 1_000
    connections_max: int = limits.HTTP_CONNECTIONS_MAX

    def body_deadline_s(self, declared: int | None) -> float:
        """Return how long a body may take. One without a declared length may take as long as the largest."""
        size = limits.HTTP_BATCH_BYTES_MAX if declared is None else min(declared, limits.HTTP_BATCH_BYTES_MAX)
        return self.body_s + self.body_s_per_mib * size / MIB


def allowed_connections(most: int = limits.HTTP_CONNECTIONS_MAX) -> int:
    """Return the limit of connections, or fewer if the system permits fewer open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files < 0 else max(2, min(most, files - RESERVED_FILES))


class JoinedAnswers:
    """A transport that sends the head of an answer together with its body.

    uvicorn writes both by themselves. Two writes are two system calls, and wake the client twice.
    """

    __slots__ = ("_begun", "_connection", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport, connection: "GuardedConnection") -> None:
        self._transport = transport
        self._connection = connection
        self._head = b""
        self._begun: Any = None
        """The request whose answer has begun."""

    def write(self, data: bytes) -> None:
        """Send `data`, or keep it if it is the head of an answer whose body has a declared length: the body comes next."""
        cycle = self._connection.cycle
        if self._head:
            data, self._head = self._head + data, b""
        elif cycle is not self._begun and _has_body(cycle):
            self._begun, self._head = cycle, data
            return
        self._transport.write(data)

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def write_eof(self) -> None:
        self._send_head()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _send_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class GuardedConnection(HttpToolsProtocol):
    """A connection whose client must send each part of a request in time. `connection_class` makes a class for each server.

    `_part` is what the client has to send next: `idle` before a request, then `head` and `body`, and `done` until the answer is
    complete. The deadline of a part begins with it. A request that comes in one piece sets no timer.
    """

    bounds: ClassVar[ConnectionLimits]
    idle: ClassVar[dict["GuardedConnection", None]]
    """Connections without a request, the longest waiting first. They can be closed at any time."""

    _part = "idle"
    _request = 0
    """The number of the request on this connection."""
    _timed: tuple[int, str] | None = None
    """The request and the part that the deadline is for."""
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    """Bytes of the request line and of complete headers."""
    _unparsed_bytes = 0
    """Bytes that came after the beginning of an incomplete head. The parser keeps an incomplete header, of any size."""
    _refusal: HoldfastError | None = None
    _is_refused = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.timeout_keep_alive = self.bounds.idle_s  # type: ignore[assignment]

    # Events of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections_max and not self._close_an_idle_one():
            self._is_refused = True
            transport.write(_answer(Unavailable("the server has too many connections", outcome="none")))
            transport.close()
            return
        self.transport = JoinedAnswers(transport, self)  # type: ignore[assignment]
        self.idle[self] = None
        self._start_timer("head", self.bounds.head_s)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._part == "head":
            self._unparsed_bytes += len(data)
        self.idle.pop(self, None)
        super().data_received(data)
        if self._part == "head" and self._unparsed_bytes > self.bounds.head_bytes_max:
            self._refuse(self._head_too_large())
        self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.idle.pop(self, None)
        super().connection_lost(exc)

    # Events of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request += 1
        self._part, self._head_bytes, self._unparsed_bytes = "head", 0, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers, which come after the body, are counted and left out: the request is under way already."""
        self._count_head(len(name) + len(value) + len(b": \r\n"))
        if self._part == "body":
            return
        super().on_header(name, value)
        if len(self.headers) > self.bounds.headers_max:
            self._stop_parsing(HeaderTooLarge(f"the request has more than {self.bounds.headers_max} headers"))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._part = "body"

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = "done"
        if self.cycle.response_complete:
            self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self.pipeline:
            return
        if self._part == "head":
            self._start_timer("head", self.bounds.head_s)  # the next request has its time from here on
        elif self._part == "done":
            self._wait_for_request()
        elif self._part == "body":
            # The answer did not wait for the body. Let the client read the answer, then close.
            self._start_timer("lingering", self.bounds.linger_s)

    def _wait_for_request(self) -> None:
        """Note that a request and its answer are complete. uvicorn's own timer closes the connection if no other one comes."""
        self._stop_timer()
        self._part = "idle"
        self.idle[self] = None

    # Limits

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.bounds.head_bytes_max:
            self._stop_parsing(self._head_too_large())

    def _head_too_large(self) -> HeaderTooLarge:
        most = self.bounds.head_bytes_max
        return HeaderTooLarge(f"the head of the request has more than {most:,} bytes", limit=most)

    def _stop_parsing(self, refusal: HoldfastError) -> None:
        """Note why the request is refused, and make the parser stop. It then calls `send_400_response`."""
        self._refusal = refusal
        raise refusal

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or ValidationError("the request is not valid HTTP/1.1", field="request"))

    def _limit_time(self) -> None:
        """Set the timer for the part that the client has to send next, unless it is set already."""
        if self._is_refused or self._timed in ((self._request, self._part), (self._request, "lingering")):
            return
        if self._part == "head":
            self._start_timer("head", self.bounds.head_s)
        elif self._part == "body":
            self._start_timer("body", self.bounds.body_deadline_s(_declared_length(self.headers)))
        else:
            self._stop_timer()

    def _start_timer(self, part: str, seconds: float) -> None:
        self._stop_timer()
        self._timed = (self._request, part)
        self._deadline = self.loop.call_later(seconds, self._expire, part, seconds)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._timed = None

    def _expire(self, part: str, seconds: float) -> None:
        if part == "lingering":
            self.transport.close()
        elif self.flow.read_paused or self._has_earlier_request():
            self._start_timer(part, seconds)  # the server does not need this part yet, so the client is not late
        else:
            self._refuse(RequestTimeout(f"the {part} of a request has to come within {seconds:g} s"))

    def _has_earlier_request(self) -> bool:
        """Return whether a request before the one that is being read is not answered yet."""
        cycle: Any = self.cycle  # None before the first request
        return bool(self.pipeline) or (self._part == "head" and cycle is not None and not cycle.response_complete)

    def _close_an_idle_one(self) -> bool:
        """Close the connection that has waited longest for a request. Return False if there is none."""
        for connection in self.idle:
            del self.idle[connection]
            connection.transport.close()
            return True
        return False

    def _refuse(self, error: HoldfastError) -> None:
        """Answer with an error, unless an answer has begun, and close the connection.

        What the client still sends is read and dropped for a moment. Otherwise its system could drop the answer.
        """
        self._is_refused = True
        self._stop_timer()
        if self.transport.is_closing():
            return
        has_earlier = self._has_earlier_request()
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or has_earlier:
                self.transport.close()  # an error now would be read as a part, or as the answer, of another request
                return
        self.transport.write(_answer(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._start_timer("lingering", self.bounds.linger_s)


def connection_class(chosen: ConnectionLimits) -> Any:
    """Return a protocol class for one server, with its own limits and its own list of idle connections."""
    return type("ServedConnection", (GuardedConnection,), {"bounds": chosen, "idle": {}})


def _has_body(cycle: Any) -> bool:
    """Return whether an answer has begun, and has a body of a declared length. `cycle` is None before the first request."""
    return (
        cycle is not None
        and cycle.response_started
        and cycle.chunked_encoding is False
        and cycle.expected_content_length > 0
        and cycle.scope["method"] != "HEAD"
    )


def _declared_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _answer(error: HoldfastError) -> bytes:
    body = _encode(problem(error))
    retry = b"retry-after: 1\r\n" if isinstance(error, Unavailable) else b""
    return b"".join((
        STATUS_LINE[error.http_status],
        b"content-type: " + PROBLEM_TYPE.encode() + b"\r\n",
        b"content-length: " + str(len(body)).encode() + b"\r\n",
        b"x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n",
        retry,
        b"\r\n",
        body,
    ))  # fmt: skip
