"""The ASGI application: from a request to its answer.

A request goes through these steps: its id, the Host header, the route, the caller, the caller's limits, its role, the body, the
ledger's verb. The first step that refuses it decides the answer.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core.model import TERMINAL
from holdfast.errors import (
    Forbidden,
    HoldfastError,
    InternalError,
    MethodNotAllowed,
    Unauthenticated,
    Unavailable,
    ValidationError,
)
from holdfast.ledger import Job, Ledger
from holdfast.server import access_log, fleet, holders, jobs
from holdfast.server.access import Gatekeeper, Principal
from holdfast.server.call import JSON_TYPE, Call, Reply
from holdfast.server.claims import ChangeWatcher, Claims
from holdfast.server.problems import PROBLEM_TYPE, problem, retry_after
from holdfast.server.request import ClientGone, RequestHeaders, check_content_type, decode_body, etag_rev, read_body, read_query
from holdfast.server.routes import ROUTES, Route, Router
from holdfast.server.threads import thread_pools
from holdfast.version import __version__

T = TypeVar("T")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger("holdfast.server")

HANDLERS = (jobs, holders, fleet)
"""The modules that fill the table of routes."""
_encode = msgspec.json.Encoder(decimal_format="number").encode
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"holdfast-version", __version__.encode()),
)
_REQUEST_ID_MAX = 64
END_POLL_SECONDS = 1.0
"""How often a request that waits for a job's end reads the job again if no change was told."""
OFFSET_SECONDS = 10.0
"""How often the difference between the server's clock and the ledger's is measured."""


class Server:
    """The state of a server that its requests share."""

    def __init__(self, ledger: Ledger, gatekeeper: Gatekeeper) -> None:
        self.ledger = ledger
        self.gatekeeper = gatekeeper
        self.router = Router(ROUTES)
        self.pools = thread_pools(limits.HTTP_REQUESTS_WAITING_MAX)
        self.claims = Claims(ledger, self.pools["write"], self.pools["read"])
        self.ending = False
        self._watcher: ChangeWatcher | None = None

    # For handlers

    async def read(self, work: Callable[[], T]) -> T:
        return await self.pools["read"].call(work)

    async def wait_for_end(self, job: Job, seconds: float) -> Job:
        """Return the job when it is over, or as it is after this many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while job.status not in TERMINAL and (left := deadline - loop.time()) > 0 and not self.ending:
            await self.claims.wait_for_change(min(left, END_POLL_SECONDS))
            job = await self.read(partial(self.ledger.get, job.id))
        return job

    def is_gone(self, call: Call) -> bool:
        return self.ending

    def verbs_of(self, who: Principal) -> list[str]:
        """Return the verbs that the caller may use."""
        return sorted({one.verb for one in self.router_routes if one.least != "none" and who.may(one.least)})

    @property
    def router_routes(self) -> list[Route]:
        return ROUTES

    # The ASGI interface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._watcher = ChangeWatcher(self.ledger, asyncio.get_running_loop(), self.claims.notify)
                self._watcher.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.end()
                if self._watcher is not None:
                    self._watcher.close()
                for pool in self.pools.values():
                    pool.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def end(self) -> None:
        """Answer everything that waits: the server stops."""
        self.ending = True
        self.claims.end()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        record = access_log.Entry(scope["method"], scope.get("client"))
        headers = RequestHeaders(scope["headers"])
        record.request_id = _request_id(headers)
        try:
            reply, route = await self._answer(scope, headers, receive, record)
            body = b"" if reply.body is None else _encode(reply.body)
            status, more, kind = reply.status or route.status, dict(reply.headers), JSON_TYPE
        except ClientGone:
            record.status = 499
            record.write(log, time.monotonic() - began)
            return
        except Exception as error:  # noqa: BLE001 - every error becomes an answer
            known = error if isinstance(error, HoldfastError) else _internal(error, record.request_id)
            document = problem(known, record.request_id, matched=headers.get("if-match") is not None, request_id=record.key)
            body, status, kind = _encode(document), document.status, PROBLEM_TYPE
            more, record.code = _problem_headers(known), known.code
        if record.key is not None:
            more.setdefault("Idempotency-Key", record.key)
        record.status, record.size = status, len(body)
        with contextlib.suppress(OSError):
            await _send(send, status, body, kind, more, record.request_id, head=scope["method"] == "HEAD")
        record.write(log, time.monotonic() - began)

    async def _answer(self, scope: Scope, headers: RequestHeaders, receive: Receive, record: access_log.Entry) -> tuple[Reply, Route]:
        self.gatekeeper.check_host(headers)
        found = self.router.find(scope["method"], scope["raw_path"].partition(b"?")[0])
        route = found.route
        record.route = route.path
        if self.ending:
            raise Unavailable("the server is stopping", outcome="none")
        principal = await self._principal(route, headers, scope, record)
        with self.gatekeeper.under_way(principal):
            call = Call(self.ledger, principal)
            call.server, call.parameters = self, found.parameters
            call.redaction = self.gatekeeper.redaction(principal)
            call.traceparent = headers.get("traceparent")
            call.query = read_query(scope["query_string"], route.query)
            if scope["method"] not in ("GET", "HEAD"):
                self._read_write_headers(call, headers, record)
                if route.body is not None:
                    check_content_type(headers)
                call.raw = await read_body(receive, headers, route.body_bytes_max)
                if route.body is not None:
                    call.body = decode_body(call.raw, route.body, route.body_bytes_max)
            answer = await self._run(route, call)
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        matched = headers.get("if-none-match")
        if scope["method"] in ("GET", "HEAD") and matched is not None and matched == reply.headers.get("ETag"):
            return Reply(None, 304, reply.headers), route
        return reply, route

    async def _principal(self, route: Route, headers: RequestHeaders, scope: Scope, record: access_log.Entry) -> Principal:
        """Return the caller. Raise Unauthenticated, Forbidden, or TooManyRequests."""
        peer = (scope.get("client") or ("", 0))[0]
        principal = await self.gatekeeper.identify(headers, peer, scope["method"], self.pools["read"].call)
        record.principal, record.role = principal.name, principal.role_name
        if route.least != "none" and principal.is_nobody:
            raise Unauthenticated("a valid token is needed")
        if not principal.may(route.least):
            raise Forbidden(
                f"this needs the role {route.least}",
                verb=route.verb,
                allowed=principal.roles_that_may(route.least),
                action=f"Use a token with the role {route.least}.",
            )
        return principal

    def _read_write_headers(self, call: Call, headers: RequestHeaders, record: access_log.Entry) -> None:
        given = headers.get("idempotency-key")
        if given is not None:
            call.request_id = limits.check_key("Idempotency-Key", given)
        record.key = call.request_id = call.request_id or secrets.token_hex(8)
        call.expected_rev = etag_rev(headers.get("if-match"), "If-Match")
        incarnation = headers.get("holdfast-incarnation")
        call.act_as(call.principal.actor(incarnation or "http", headers.get("holdfast-actor")))

    async def _run(self, route: Route, call: Call) -> Any:
        if route.awaits:
            return await route.handler(call)
        return await self.pools[route.pool].call(partial(route.handler, call))


def _request_id(headers: RequestHeaders) -> str:
    """Return the caller's id of the request, for logs, or a new one."""
    with contextlib.suppress(ValidationError):
        given = headers.get("x-request-id") or ""
        if 0 < len(given) <= _REQUEST_ID_MAX and given.isascii() and given.replace(".", "").replace("_", "").replace("-", "").isalnum():
            return given
    return secrets.token_hex(8)


def _internal(error: Exception, instance: str) -> InternalError:
    """Log an error that is none of ours. Its text does not leave the server."""
    log.error("a request failed", exc_info=error, extra={"request_id": instance})
    return InternalError("the server failed to answer this request")


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


async def _send(send: Send, status: int, body: bytes, kind: str, more: dict[str, str], request_id: str, *, head: bool) -> None:
    headers = [*_SECURITY, (b"x-request-id", request_id.encode())]
    if status not in (204, 304):
        headers += [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head or status in (204, 304) else body})


