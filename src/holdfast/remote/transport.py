"""Requests to a Holdfast server: connections, deadlines and retries.

A call that changes something has an idempotency key. If its answer is lost, the same call is sent again with the same key until
it is answered: the server does nothing twice. After the deadline the caller gets Unavailable with the outcome "unknown" and the
key, and can go on repeating the call.
"""

import contextlib
import http
import http.client
import logging
import os
import ssl
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast.core.limits import EXPORT_LINE_BYTES_MAX
from holdfast.core.urls import RemoteUrl
from holdfast.errors import HoldfastError, TooManyRequests, Unavailable, ValidationError
from holdfast.remote.connections import (
    ANSWER_BYTES_MAX,
    Answer,
    AnswerLost,
    AnswerTooLarge,
    ConnectionLane,
    NotSent,
    Sent,
    ServerConnection,
    StaleConnection,
    answer_read,
    closed_on_error,
    read_body,
)
from holdfast.remote.refusals import ProblemFields, error_of
from holdfast.remote.sockets import RequestDeadline
from holdfast.version import __version__

T = TypeVar("T")

Lane = Literal["work", "beat", "wait", "stream"]
"""Connections by kind of call. A call that waits for a change must not delay others, and nothing may delay a heartbeat."""
CONNECTIONS_MAX: dict[Lane, int] = {"work": 10, "beat": 1, "wait": 3, "stream": 2}
CALL_SECONDS = 30.0
"""The time for one call, with all of its tries."""
BEAT_SECONDS = 5.0
"""The time for one try of a heartbeat. It is then sent again on another connection, while the lease still lasts."""
NOTICE_SECONDS = 3.0
"""A server that has not answered a call for this long is reported in the log, once until it answers."""
PAUSE_SECONDS = 0.05
"""The pause before the second try. It doubles with each further one."""
PAUSE_SECONDS_MAX = 2.0
JSON_TYPES = ("application/json", "application/problem+json")
_TEMPORARY = frozenset({502, 503, 504})
"""Statuses with which a proxy answers for a server that it does not reach."""
_TOKEN_BYTES_MAX = 4_096

log = logging.getLogger("holdfast.remote")
_problems = msgspec.json.Decoder(ProblemFields)


class Transport:
    """A pool of connections to one server. Safe to use from many threads, but not after a fork."""

    def __init__(self, url: RemoteUrl, *, token: str | None, ca_file: str | None = None, jitter: Callable[[], float]) -> None:
        """`jitter` returns a factor for pauses."""
        if token is not None and url.scheme != "https" and not url.is_loopback:
            raise ValidationError("a token is sent only over https, or to this machine", field="url", action="Use https://.")
        self._url = url
        self._headers = _common_headers(token)
        self._tls = _tls_context(ca_file) if url.scheme == "https" else None
        self._jitter = jitter
        self._lanes = {lane: ConnectionLane(most) for lane, most in CONNECTIONS_MAX.items()}
        self.seconds = CALL_SECONDS
        """The time for one call, with all of its tries."""
        self._pid = os.getpid()
        self._closed = False
        self._is_silent = False
        """Whether it was reported that the server does not answer."""

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
        more = {} if headers is None else dict(headers)
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            more["Content-Type"] = "application/json"
        if key is not None:
            more["Idempotency-Key"] = key
        sent = self._request(method, path, query, data, more, changes=method != "GET" if changes is None else changes)
        return self._settle(sent, answer, key, self.seconds if seconds is None else seconds, lane)

    def begin(self, path: str, answer: type[T], query: dict[str, Any]) -> "PendingAnswer[T]":
        """Send a request that only reads, and whose answer may take long. Raise Unavailable if that is not possible now."""
        sent, lane, deadline = self._request("GET", path, query), self._lanes["wait"], RequestDeadline(self.seconds)
        with contextlib.ExitStack() as place:
            try:
                place.enter_context(lane.place(0.0))
                connection = lane.take() or ServerConnection(self._url, self._tls, deadline)
                with closed_on_error(connection):
                    connection.send(sent, deadline)
            except (NotSent, AnswerLost, TimeoutError) as error:
                raise Unavailable(str(error)) from error
            return PendingAnswer(self, sent, answer, connection, place.pop_all())

    def lines(
        self, path: str, query: dict[str, Any], media_type: str, *, deadline: RequestDeadline | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the lines of a file or a stream, as the server sends it. Raise Unavailable if it is cut.

        Each line has the time of a call. A stream has a `deadline` of its own, and is refused at once if there are too many.
        """
        sent, first = self._request("GET", path, query), deadline or RequestDeadline(self.seconds)
        try:
            with (
                self._lanes["stream"].place(self.seconds if deadline is None else 0.0),
                contextlib.closing(ServerConnection(self._url, self._tls, first)) as connection,
            ):
                connection.send(sent, first)
                response = connection.begin_answer(first)
                self._check_stream(sent, response, media_type)
                while line := self._line(connection, response, deadline):
                    yield line
        except (NotSent, AnswerLost, TimeoutError) as error:
            raise Unavailable(str(error)) from error

    def _check_stream(self, sent: Sent, response: http.client.HTTPResponse, media_type: str) -> None:
        """Raise the error that the server answered instead of a stream."""
        kind = response.getheader("Content-Type") or ""
        if response.status != http.HTTPStatus.OK or kind.partition(";")[0].strip() != media_type:
            with answer_read():
                body = read_body(response)
            self.read(sent, Answer(response.status, kind, None, body), msgspec.Raw)
            raise Unavailable(f"{self._url.host} answered {kind or 'an untyped body'} instead of {media_type}", retryable=False)

    def _line(self, connection: ServerConnection, response: http.client.HTTPResponse, deadline: RequestDeadline | None) -> bytes:
        connection.limit(deadline or RequestDeadline(self.seconds))
        with answer_read():
            line = response.readline(EXPORT_LINE_BYTES_MAX + 1)
        if len(line) > EXPORT_LINE_BYTES_MAX:
            raise AnswerLost(f"a line has more than {EXPORT_LINE_BYTES_MAX} bytes")
        return line

    def close(self) -> None:
        self._closed = True
        for lane in self._lanes.values():
            lane.close()

    # Steps

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None,
        body: bytes | None = None,
        more: dict[str, str] | None = None,
        *,
        changes: bool = False,
    ) -> Sent:
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)
        if self._closed:
            raise Unavailable("this ledger is closed", retryable=False)
        given = {} if query is None else {name: value for name, value in query.items() if value is not None}
        target = self._url.prefix + path + (f"?{urlencode(given, doseq=True)}" if given else "")
        headers = {name: value.encode() for name, value in {**self._headers, **(more or {})}.items()}
        return Sent(method, target, body, headers, changes)

    def _settle(self, sent: Sent, wanted: type[T], key: str | None, seconds: float, lane: Lane) -> T:
        """Send the request until it is answered, or its time is over."""
        end = time.monotonic() + seconds
        in_doubt = False
        tries = 0
        while True:
            retry_after: str | None = None
            left = end - time.monotonic()
            deadline = RequestDeadline(min(left, BEAT_SECONDS) if lane == "beat" else left)
            try:
                found = self._exchange(sent, deadline, lane)
                retry_after, self._is_silent = found.retry_after, False
                return self.read(sent, found, wanted)
            except (NotSent, TimeoutError) as error:
                failed = Unavailable(str(error) or "the server did not answer in time")
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
            if time.monotonic() + pause >= end:
                raise _unsettled(failed, key, in_doubt=in_doubt)
            self._report_silence(failed.message, end)
            time.sleep(pause)
            tries += 1

    def _report_silence(self, why: str, end: float) -> None:
        """Log that a call takes long, unless that was logged since the last answer. `end` is when it is given up."""
        if not self._is_silent:
            self._is_silent = True
            left, where = max(0.0, end - time.monotonic()), f"{self._url.host}:{self._url.port}"
            log.warning("no answer from %s yet: %s; it is tried for %.0f s more", where, why, left)

    def _pause(self, tries: int, retry_after: str | None) -> float:
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            return float(min(int(retry_after), int(CALL_SECONDS))) * self._jitter()
        return min(PAUSE_SECONDS * 2.0 ** min(tries, 10), PAUSE_SECONDS_MAX) * self._jitter()

    def _exchange(self, sent: Sent, deadline: RequestDeadline, lane: Lane) -> Answer:
        """Send the request on a free connection and read the whole answer."""
        connections = self._lanes[lane]
        with connections.place(deadline.left()):
            connection = connections.take() or ServerConnection(self._url, self._tls, deadline)
            with closed_on_error(connection):
                connection.send(sent, deadline)
                if lane == "work" and not connection.is_readable(min(NOTICE_SECONDS, deadline.left())):
                    self._report_silence("the request was sent", time.monotonic() + deadline.left())
                found = self._whole(connection, sent, deadline)
            self.give_back(connection, lane)
            return found

    def _whole(self, connection: ServerConnection, sent: Sent, deadline: RequestDeadline) -> Answer:
        try:
            return connection.read_answer(deadline)
        except AnswerTooLarge:
            raise Unavailable(
                f"an answer of {self._url.host} has more than {ANSWER_BYTES_MAX} bytes",
                outcome="unknown" if sent.changes else "none",
                retryable=False,
                action="Ask for fewer at once.",
            ) from None

    def give_back(self, connection: ServerConnection, lane: Lane) -> None:
        """Keep a connection whose answer was read, for another request."""
        if connection.is_open and not self._closed:
            self._lanes[lane].keep(connection)
        else:
            connection.close()

    def read(self, sent: Sent, found: Answer, wanted: type[T]) -> T:
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


class PendingAnswer(Generic[T]):
    """A request that was sent. It has a connection of its own until its answer is read or it is closed."""

    def __init__(
        self,
        transport: Transport,
        sent: Sent,
        answer: type[T],
        connection: ServerConnection,
        place: contextlib.ExitStack,
    ) -> None:
        self._transport = transport
        self._sent = sent
        self._wanted = answer
        self._connection = connection
        self._place = place
        self._is_read = False

    def has_come(self, seconds: float) -> bool:
        """Wait for the answer. Return False if it has not come after this many seconds."""
        return self._connection.is_readable(seconds)

    def read(self) -> T:
        """Return the answer. Raise the error that the server answered, or Unavailable."""
        self._is_read = True
        with self._place:
            try:
                with closed_on_error(self._connection):
                    found = self._connection.read_answer(RequestDeadline(self._transport.seconds))
            except (AnswerLost, AnswerTooLarge) as error:
                raise Unavailable(str(error)) from error
            self._transport.give_back(self._connection, "wait")
        return self._transport.read(self._sent, found, self._wanted)

    def close(self) -> None:
        """Give up the answer. Nothing happens if it was read: its connection may be used again."""
        if not self._is_read:
            self._connection.close()
            self._place.close()


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


def _unsettled(failed: Unavailable, key: str | None, *, in_doubt: bool) -> HoldfastError:
    """Return the error of a call whose time is over."""
    more = {name: value for name, value in failed.context.items() if name not in ("outcome", "request_id")}
    if key is not None:
        more["request_id"] = key
    return Unavailable(failed.message, outcome="unknown" if in_doubt else "none", action=failed.action, **more)
