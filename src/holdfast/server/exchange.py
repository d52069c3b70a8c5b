"""One request and its answer, as ASGI has them: headers, compression, problems, and parts of streams."""

import asyncio
import contextlib
import gzip
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, MethodNotAllowed, Unauthenticated
from holdfast.server import access_log
from holdfast.server.call import JSON_TYPE, Reply
from holdfast.server.clock import LedgerClock
from holdfast.server.origins import Headers
from holdfast.server.problems import PROBLEM_TYPE, problem, retry_after
from holdfast.version import __version__

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_encode = msgspec.json.Encoder(decimal_format="number").encode
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"holdfast-version", __version__.encode()),
)
ZIPPED_BYTES_MIN = 1_024
"""Shorter answers are not compressed."""
SMALL_BYTES = 65_536
SEND_SECONDS_MAX = 30.0
"""A stream is closed if its client takes nothing for this long."""


class Exchange:
    """One request and its answer, as ASGI has them."""

    __slots__ = ("_begun", "clock", "cookies", "headers", "more", "peer", "receive", "record", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, record: access_log.AccessEntry) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.record = record
        self.headers: Headers = {}
        self.peer: str = (scope.get("client") or ("", 0))[0]
        self.more: dict[str, str] = {}
        """Headers of the answer that do not depend on the route."""
        self.cookies: tuple[str, ...] = ()
        self.clock: LedgerClock | None = None
        """The ledger's time, if the answer has it."""
        self._begun = False

    async def wait_until_gone(self) -> None:
        """Return when the client has closed its connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def send_answer(self, reply: Reply, status: int, read: Callable[[Callable[[], bytes]], Awaitable[bytes]]) -> None:
        status, self.cookies = reply.status or status, reply.cookies
        kind = reply.headers.get("Content-Type", JSON_TYPE)
        body = reply.body if isinstance(reply.body, bytes) else b"" if reply.body is None else _encode(reply.body)
        more = {name: text for name, text in reply.headers.items() if name != "Content-Type"}
        if kind == JSON_TYPE and len(body) >= ZIPPED_BYTES_MIN and "ETag" not in more and self._takes_zipped_data():
            zip_ = partial(gzip.compress, body, 1, mtime=0)
            body = zip_() if len(body) <= SMALL_BYTES else await read(zip_)
            more["Content-Encoding"] = "gzip"
        await self._send(status, body, kind, more)

    def _takes_zipped_data(self) -> bool:
        """Whether the answer may be compressed. That to a change may not: it can have a secret, which its length would tell."""
        return self.scope["method"] == "GET" and "gzip" in (self.headers.get("accept-encoding") or "")

    async def send_problem(self, error: HoldfastError) -> None:
        if self._begun:
            return
        matched = self.headers.get("if-match") is not None
        document = problem(error, self.record.request_id, matched=matched, request_id=self.record.key)
        await self._send(document.status, _encode(document), PROBLEM_TYPE, _problem_headers(error))

    async def _send(self, status: int, body: bytes, kind: str, more: dict[str, str]) -> None:
        is_empty = status in (204, 304)
        self.record.size = len(body)
        if self.record.key is not None:
            more = {**more, "Idempotency-Key": self.record.key}
        await self.begin(status, None if is_empty else kind, more, None if is_empty else len(body))
        with contextlib.suppress(OSError):
            await self.send({"type": "http.response.body", "body": b"" if is_empty or self.scope["method"] == "HEAD" else body})

    async def begin(self, status: int, kind: str | None, more: dict[str, str], size: int | None = None) -> None:
        self._begun, self.record.status = True, status
        own = [(name.lower().encode(), text.encode("latin-1", "replace")) for name, text in (self.more | more).items()]
        given = {name for name, _ in own}
        headers = [pair for pair in _SECURITY if pair[0] not in given]
        headers.append((b"x-request-id", self.record.request_id.encode()))
        if self.clock is not None:
            headers.append((b"holdfast-now", self.clock.header()))
        if kind is not None:
            headers.append((b"content-type", kind.encode()))
        if size is not None:
            headers.append((b"content-length", str(size).encode()))
        headers += own
        headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies]
        with contextlib.suppress(OSError):
            await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, message: Any) -> None:
        """Send a message of another application, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self._begun, self.record.status = True, message["status"]
            given = {name.lower() for name, _ in message["headers"]}
            more = [(name.lower().encode(), text.encode("latin-1", "replace")) for name, text in self.more.items()]
            own = [(b"x-request-id", self.record.request_id.encode()), *_SECURITY, *more]
            headers = [*message["headers"], *((name, text) for name, text in own if name not in given)]
            message = {**message, "headers": headers}
        else:
            self.record.size += len(message.get("body", b""))
        await asyncio.wait_for(self.send(message), SEND_SECONDS_MAX)

    async def send_part(self, part: bytes) -> None:
        self.record.size += len(part)
        await self.send({"type": "http.response.body", "body": part, "more_body": True})

    async def finish(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})


def _problem_headers(error: HoldfastError) -> dict[str, str]:
    more: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        more["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        more["Allow"] = ", ".join(error.context["allowed"])
    seconds = retry_after(error)
    if seconds is not None:
        more["Retry-After"] = str(seconds)
    return more
