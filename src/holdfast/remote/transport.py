"""Requests to a Holdfast server: connections, deadlines and retries.

A call that changes something has an idempotency key. If its answer is lost, the same call is sent again with the same key until
it is answered: the server does nothing twice. After the deadline the caller gets Unavailable with the outcome "unknown" and the
key, and can go on repeating the call.
"""

import contextlib
import http.client
import os
import select
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast.core.urls import RemoteUrl
from holdfast.errors import HoldfastError, TooManyRequests, Unavailable, ValidationError
from holdfast.remote.refusals import ProblemFields, error_of
from holdfast.version import __version__

T = TypeVar("T")

Lane = Literal["work", "beat", "wait"]
"""Connections by kind of call. A call that waits for a change must not delay others, and nothing may delay a heartbeat."""
CONNECTIONS_MAX: dict[Lane, int] = {"work": 10, "beat": 1, "wait": 5}
CALL_SECONDS = 30.0
"""The time for one call, with all of its tries."""
IDLE_SECONDS = 60.0
"""A connection that was idle for longer is not used again. Servers and proxies close idle connections after about this time."""
PAUSE_SECONDS = 0.05
"""The pause before the second try. It doubles with each further one."""
PAUSE_SECONDS_MAX = 2.0
JSON_TYPES = ("application/json", "application/problem+json")
_TEMPORARY = frozenset({502, 503, 504})
"""Statuses with which a proxy answers for a server that it does not reach."""
_TOKEN_BYTES_MAX = 4_096

_problems = msgspec.json.Decoder(ProblemFields)


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


class _Connections:
    """The connections of one lane: idle ones to use again, and a limit for all."""

    def __init__(self, most: int) -> None:
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._free = threading.BoundedSemaphore(most)

    @contextlib.contextmanager
    def place(self, seconds: float) -> Iterator[None]:
        if not self._free.acquire(timeout=max(0.0, seconds)):
            raise NotSent("all connections of this process to the server are in use")
        try:
            yield
        finally:
            self._free.release()

    def take(self, now: float) -> http.client.HTTPConnection | None:
        """Return the connection that was used last, unless it was idle for too long or was closed."""
        while self._idle:
            connection, since = self._idle.pop()
            if now - since < IDLE_SECONDS and not _is_readable(connection):
                return connection
            connection.close()
        return None

    def keep(self, connection: http.client.HTTPConnection, now: float) -> None:
        self._idle.append((connection, now))

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has sent something, or has closed the connection: an idle connection has nothing to read."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


class Transport:
    """A pool of connections to one server. Safe to use from many threads, but not after a fork."""

    def __init__(
        self,
        url: RemoteUrl,
        *,
        token: str | None,
        ca_file: str | None = None,
        jitter: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`jitter` returns a factor for pauses."""
        if token is not None and url.scheme != "https" and not url.is_loopback:
            raise ValidationError("a token is sent only over https, or to this machine", field="url", action="Use https://.")
        self._url = url
        self._headers = _common_headers(token)
        self._tls = _tls_context(ca_file) if url.scheme == "https" else None
        self._jitter = jitter
        self._monotonic = monotonic
        self._sleep = sleep
        self._lanes = {lane: _Connections(most) for lane, most in CONNECTIONS_MAX.items()}
        self.seconds = CALL_SECONDS
        """The time for one call, with all of its tries."""
        self._pid = os.getpid()
        self._closed = False

    def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
        key: str | None = None,
        changes: bool | None = None,
        seconds: float | None = None,
        lane: Lane = "work",
    ) -> T:
        """Send a request and return its answer. Raise the error that the server answered, or Unavailable.

        `key` is the idempotency key. `changes` is False for a request with a body that only reads.
        """
        self._check_usable()
        more = dict(self._headers) | (headers or {})
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            more["Content-Type"] = "application/json"
        if key is not None:
            more["Idempotency-Key"] = key
        encoded = {name: value.encode() for name, value in more.items()}
        sent = Sent(method, self._target(path, query), data, encoded, method != "GET" if changes is None else changes)
        return self._settle(sent, answer, key, self.seconds if seconds is None else seconds, lane)

    def lines(self, path: str, query: dict[str, Any]) -> Iterator[bytes]:
        """Yield the lines of a file, as the server sends it. Raise Unavailable if it is cut."""
        self._check_usable()
        headers = {name: value.encode() for name, value in self._headers.items()}
        sent = Sent("GET", self._target(path, query), None, headers, changes=False)
        with self._lanes["wait"].place(self.seconds):
            try:
                connection = self._connect(self.seconds)
            except NotSent as error:
                raise Unavailable(str(error)) from error
            with contextlib.closing(connection):
                try:
                    connection.request(sent.method, sent.path, None, sent.headers)
                    response = connection.getresponse()
                    if response.status != http.HTTPStatus.OK:
                        kind = response.getheader("Content-Type") or ""
                        self._read(sent, Answer(response.status, kind, None, response.read()), dict)
                    yield from response
                except (OSError, http.client.HTTPException) as error:
                    raise Unavailable(f"the connection was cut: {error}") from error

    def close(self) -> None:
        self._closed = True
        for lane in self._lanes.values():
            lane.close()

    # Steps

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)
        if self._closed:
            raise Unavailable("this ledger is closed", retryable=False)

    def _target(self, path: str, query: dict[str, Any] | None) -> str:
        given = {} if query is None else {name: value for name, value in query.items() if value is not None}
        return self._url.prefix + path + (f"?{urlencode(given, doseq=True)}" if given else "")

    def _settle(self, sent: Sent, wanted: type[T], key: str | None, seconds: float, lane: Lane) -> T:
        """Send the request until it is answered, or its time is over."""
        deadline = self._monotonic() + seconds
        in_doubt = False
        tries = 0
        while True:
            retry_after: str | None = None
            try:
                found = self._exchange(sent, deadline, lane)
                retry_after = found.retry_after
                return self._read(sent, found, wanted)
            except NotSent as error:
                failed = Unavailable(str(error))
            except AnswerLost as error:
                in_doubt |= sent.changes
                failed = Unavailable(str(error))
                if isinstance(error, StaleConnection):
                    continue
            except TooManyRequests as error:
                failed = Unavailable(error.message)
            except Unavailable as error:
                in_doubt |= sent.changes and error.outcome == "unknown"
                if not error.retryable or error.locked:
                    raise
                failed = error
            pause = self._pause(tries, retry_after)
            if self._monotonic() + pause >= deadline:
                raise _unsettled(failed, key, in_doubt=in_doubt)
            self._sleep(pause)
            tries += 1

    def _pause(self, tries: int, retry_after: str | None) -> float:
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            return float(min(int(retry_after), int(CALL_SECONDS))) * self._jitter()
        return min(PAUSE_SECONDS * 2.0 ** min(tries, 10), PAUSE_SECONDS_MAX) * self._jitter()

    def _exchange(self, sent: Sent, deadline: float, lane: Lane) -> Answer:
        """Send the request on a free connection and read the whole answer."""
        connections = self._lanes[lane]
        with connections.place(deadline - self._monotonic()):
            connection = connections.take(self._monotonic())
            was_used = connection is not None
            left = max(0.001, deadline - self._monotonic())
            if connection is None:
                connection = self._connect(left)
            assert connection.sock is not None
            try:
                connection.sock.settimeout(left)
                found, keeps = _send(connection, sent, was_used=was_used)
            except BaseException:
                connection.close()
                raise
            if keeps and not self._closed:
                connections.keep(connection, self._monotonic())
            else:
                connection.close()
            return found

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        url = self._url
        connection = (
            http.client.HTTPConnection(url.host, url.port, timeout=seconds)
            if self._tls is None
            else http.client.HTTPSConnection(url.host, url.port, timeout=seconds, context=self._tls)
        )
        try:
            connection.connect()  # it sets TCP_NODELAY
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise Unavailable(
                f"the certificate of {url.host} is not valid: {error.verify_message}",
                retryable=False,
                action="Use the name that the certificate has, or pass the authority's certificate as ca_file.",
            ) from None
        except OSError as error:
            connection.close()
            raise NotSent(f"cannot reach {url.host}:{url.port}: {error.strerror or error}") from error
        return connection

    def _read(self, sent: Sent, found: Answer, wanted: type[T]) -> T:
        """Return the body of an answer. Raise its error if it is a refusal."""
        kind = found.kind.partition(";")[0].strip().lower()
        if found.status == http.HTTPStatus.NO_CONTENT and wanted is type(None):
            return None
        try:
            if kind not in JSON_TYPES:
                raise msgspec.DecodeError(f"it is {kind or 'untyped'}")
            if kind == JSON_TYPES[1]:
                raise error_of(_problems.decode(found.body))
            if found.status >= http.HTTPStatus.MULTIPLE_CHOICES:
                raise msgspec.DecodeError("it is no refusal of Holdfast")
            return msgspec.json.decode(found.body, type=wanted)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"{self._url.host} answered {found.status}, and the answer is not Holdfast's: {error}",
                outcome="unknown" if sent.changes else "none",
                retryable=found.status in _TEMPORARY,
                action="Check the url. Redirects are not followed.",
            ) from None


def _common_headers(token: str | None) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": f"holdfast/{__version__}"}
    if token is not None:
        if not (token.isascii() and token.isprintable() and " " not in token and 0 < len(token) <= _TOKEN_BYTES_MAX):
            raise ValidationError("the token has a character that no token has", field="token")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ValidationError(f"{ca_file} has no certificate that can be read: {error}", field="ca_file") from None
    return context


def _send(connection: http.client.HTTPConnection, sent: Sent, *, was_used: bool) -> tuple[Answer, bool]:
    """Send the request, and return the answer and whether the connection can be used again."""
    try:
        connection.request(sent.method, sent.path, sent.body, sent.headers)
        response = connection.getresponse()
    except (ConnectionError, http.client.RemoteDisconnected) as error:
        if was_used:
            raise StaleConnection(str(error)) from error
        raise AnswerLost(f"the connection was cut: {error}") from error
    except TimeoutError as error:
        raise AnswerLost("the server did not answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise AnswerLost(f"there is no answer: {str(error) or type(error).__name__}") from error
    try:
        body = response.read()
    except TimeoutError as error:
        raise AnswerLost("the server did not answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise AnswerLost(f"the connection was cut within an answer: {str(error) or type(error).__name__}") from error
    kind, retry_after = response.getheader("Content-Type") or "", response.getheader("Retry-After")
    return Answer(response.status, kind, retry_after, body), not response.will_close


def _unsettled(failed: Unavailable, key: str | None, *, in_doubt: bool) -> HoldfastError:
    """Return the error of a call whose time is over."""
    more = {name: value for name, value in failed.context.items() if name not in ("outcome", "request_id")}
    if key is not None:
        more["request_id"] = key
    return Unavailable(failed.message, outcome="unknown" if in_doubt else "none", action=failed.action, **more)
