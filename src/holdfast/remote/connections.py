"""Connections to a Holdfast server: one request at a time on each, under one deadline, and pools of them by kind of call."""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core.limits import PAGE_MAX, PAYLOAD_BYTES_MAX
from holdfast.core.urls import RemoteUrl
from holdfast.errors import Unavailable
from holdfast.remote.sockets import DeadlineSocket, RequestDeadline

IDLE_SECONDS = 60.0
"""A connection that was idle for longer is not used again. Servers and proxies close idle connections after about this time."""
CONNECT_SECONDS = 10.0
"""The time for one try to connect."""
PART_BYTES = 65_536
ANSWER_BYTES_MAX = 3 * PAGE_MAX * PAYLOAD_BYTES_MAX
"""The most that is read of one answer. A page of jobs, each with the largest arguments, result and checkpoint, is smaller."""


class Sent(NamedTuple):
    """One request. It is sent unchanged with each try."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, bytes]
    """Names of actors and keys may have any letter. The server reads them as UTF-8."""
    changes: bool
    """Whether the request changes something, so that a lost answer leaves its outcome unknown."""


class Answer(NamedTuple):
    status: int
    kind: str
    retry_after: str | None
    body: bytes


class NotSent(Exception):
    """The server could not be reached, so the request was not sent."""


class AnswerLost(Exception):
    """The request may have arrived, and there is no answer."""


class StaleConnection(AnswerLost):
    """The server closed a connection that was used before, before the first byte of an answer."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than any answer of a server."""


class ServerConnection:
    """One connection to the server. All reads and writes of a request share its deadline."""

    def __init__(self, url: RemoteUrl, tls: ssl.SSLContext | None, deadline: RequestDeadline) -> None:
        """Connect. Raise NotSent if the server does not answer, and Unavailable if its certificate is not valid."""
        where, seconds = (url.host, url.port), min(deadline.left(), CONNECT_SECONDS)
        self._http = (
            http.client.HTTPConnection(*where, timeout=seconds)
            if tls is None
            else http.client.HTTPSConnection(*where, timeout=seconds, context=tls)
        )
        try:
            self._http.connect()  # it sets TCP_NODELAY
        except ssl.SSLCertVerificationError as error:
            self._http.close()
            raise Unavailable(
                f"the certificate of {url.host} is not valid: {error.verify_message}",
                retryable=False,
                action="Use the name that the certificate has, or pass the authority's certificate as ca_file.",
            ) from None
        except OSError as error:
            self._http.close()
            raise NotSent(f"cannot reach {url.host}:{url.port}: {error.strerror or error}") from error
        self._sock: socket.socket = self._http.sock
        self._limited = self._http.sock = DeadlineSocket(self._sock, deadline)
        self._http.auto_open = 0
        self._was_used = False
        self.is_open = True
        """Whether another request can be sent."""

    def send(self, sent: Sent, deadline: RequestDeadline) -> None:
        """Send a request. Raise AnswerLost if the connection fails."""
        self.limit(deadline)
        with self._answer_awaited():
            self._http.request(sent.method, sent.path, sent.body, sent.headers)

    def begin_answer(self, deadline: RequestDeadline) -> http.client.HTTPResponse:
        """Read the head of the answer. Raise AnswerLost if there is none in time."""
        self.limit(deadline)
        with self._answer_awaited():
            response = self._http.getresponse()
        self._was_used, self.is_open = True, not response.will_close
        return response

    def read_answer(self, deadline: RequestDeadline) -> Answer:
        """Read a whole answer. Raise AnswerLost if it does not come in time, or is cut."""
        response = self.begin_answer(deadline)
        with answer_read():
            body = read_body(response)
        kind, retry_after = response.getheader("Content-Type") or "", response.getheader("Retry-After")
        return Answer(response.status, kind, retry_after, body)

    def limit(self, deadline: RequestDeadline) -> None:
        """Read the rest of an answer under another deadline."""
        self._limited.deadline = deadline

    @contextlib.contextmanager
    def _answer_awaited(self) -> Iterator[None]:
        """Raise AnswerLost for the errors of a connection before the first byte of an answer."""
        try:
            yield
        except (ConnectionError, http.client.RemoteDisconnected) as error:
            if self._was_used:
                raise StaleConnection(str(error)) from error
            raise AnswerLost(f"the connection was cut: {error}") from error
        except TimeoutError as error:
            raise AnswerLost("the server did not answer in time") from error
        except (OSError, http.client.HTTPException) as error:
            raise AnswerLost(f"there is no answer: {str(error) or type(error).__name__}") from error

    def is_readable(self, seconds: float = 0.0) -> bool:
        """Wait until the server has sent something, or has closed the connection. Return False if the time is up first."""
        try:
            return self._limited.has_come(seconds)
        except OSError:
            return True  # the next read raises it

    def close(self) -> None:
        self._http.close()
        self._sock.close()


@contextlib.contextmanager
def closed_on_error(connection: ServerConnection) -> Iterator[None]:
    """Close a connection on which a request was not answered in full: it cannot be used again."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextlib.contextmanager
def answer_read() -> Iterator[None]:
    """Raise AnswerLost for the errors of a connection within an answer."""
    try:
        yield
    except TimeoutError as error:
        raise AnswerLost("the server did not send the whole answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise AnswerLost(f"the connection was cut within an answer: {str(error) or type(error).__name__}") from error


def read_body(response: http.client.HTTPResponse) -> bytes:
    """Read an answer in parts, so that memory is used only for what has arrived."""
    parts, size = [], 0
    while part := response.read(PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLarge
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


class ConnectionLane:
    """The connections for one kind of call: idle ones to use again, and a limit for all."""

    def __init__(self, most: int) -> None:
        self._idle: list[tuple[ServerConnection, float]] = []
        self._free = threading.BoundedSemaphore(most)

    @contextlib.contextmanager
    def place(self, seconds: float) -> Iterator[None]:
        """Take one of the places. Raise NotSent if none becomes free in time."""
        if not self._free.acquire(timeout=max(0.0, seconds)):
            raise NotSent("all connections of this process to the server are in use")
        try:
            yield
        finally:
            self._free.release()

    def take(self) -> ServerConnection | None:
        """Return the connection that was used last, unless it was idle for too long or was closed."""
        while self._idle:
            connection, since = self._idle.pop()
            # An idle connection has nothing to read, unless the server has closed it.
            if time.monotonic() - since < IDLE_SECONDS and not connection.is_readable():
                return connection
            connection.close()
        return None

    def keep(self, connection: ServerConnection) -> None:
        self._idle.append((connection, time.monotonic()))

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()
