"""The ASGI application: from a request to its answer.

A request goes through these steps: its id, the Host header, the route, the caller, the caller's limits, its role, the body, the
ledger's verb. The first step that refuses it decides the answer.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.core import limits
from holdfast.core.model import TERMINAL
from holdfast.errors import (
    Forbidden,
    HoldfastError,
    InternalError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from holdfast.ledger import Job, Ledger
from holdfast.ledger.base import sign_as_server
from holdfast.server import (
    about,
    access_log,
    accounts,
    exports,
    fleet,
    flow,
    groups,
    holders,
    jobs,
    policies,
    proofs,
    readings,
    schedules,
    services,
    sign_in,
    streams,
    tasks,
)
from holdfast.server.access import AccessRules
from holdfast.server.background import ServiceState
from holdfast.server.call import SENT, Call, Reply
from holdfast.server.claims import ChangeWatcher, Claims
from holdfast.server.clock import LedgerClock
from holdfast.server.exchange import SEND_SECONDS_MAX, SMALL_BYTES, Exchange, Receive, Scope, Send
from holdfast.server.lone_enqueues import LoneEnqueues
from holdfast.server.mcp_mount import MCP, MCP_PATH, McpMount, serve_mcp
from holdfast.server.metrics import ServerMetrics
from holdfast.server.origins import Headers, is_preflight
from holdfast.server.pages import PAGE, Pages
from holdfast.server.principal import Principal, check_incarnation
from holdfast.server.request import ClientGone, check_content_type, decode_body, etag_rev, read_body, read_headers, read_query
from holdfast.server.routes import PREFLIGHT, ROUTES, Route, Router
from holdfast.server.sign_in import SignIn
from holdfast.server.streams import EventFeed, Stream
from holdfast.server.threads import thread_pools
from holdfast.telemetry.tracing import attached_to, read_traceparent

T = TypeVar("T")

log = logging.getLogger("holdfast.server")

HANDLERS = (
    jobs,
    holders,
    tasks,
    fleet,
    groups,
    schedules,
    flow,
    policies,
    services,
    proofs,
    about,
    readings,
    streams,
    exports,
    accounts,
    sign_in,
)
"""The modules that fill the table of routes."""
API_PREFIX = b"/v1/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
CLIENT_GONE = 499
"""The status in the access log of a request whose client has gone before it was complete."""
END_POLL_SECONDS = 0.25
"""How often a request that waits for a job's end reads the job again if no change was told."""
END_PAUSE_SECONDS = 0.02
"""A request that waits for a job's end reads the job at most this often, however busy the ledger is."""
READY_SECONDS = 1.0


class Server:
    """The state of a server that its requests share."""

    def __init__(
        self,
        ledger: Ledger,
        access: AccessRules,
        sign_in: SignIn | None = None,
        mcp: McpMount | None = None,
        services: Callable[[], dict[str, ServiceState]] = dict,
    ) -> None:
        sign_as_server(ledger)
        self.ledger = ledger
        self.access = access
        self.sign_in = sign_in
        """How persons sign in; None if a token is the only way."""
        self.mcp = mcp
        """The tools of agents at /mcp; None if they are not installed."""
        self.services = services
        """Returns the states of the services that run in this process."""
        self.router = Router(ROUTES)
        self.pages = Pages()
        self.pools = thread_pools(limits.HTTP_REQUESTS_WAITING_MAX)
        self.claims = Claims(ledger, self.pools["write"], self.pools["read"])
        self.lone_enqueues = LoneEnqueues(ledger, self.pools["write"], limits.HTTP_REQUESTS_WAITING_MAX)
        self.feed = EventFeed(ledger, self.pools["read"])
        self.clock = LedgerClock(ledger.now, self.pools["read"].call)
        self.metrics = ServerMetrics(self)
        self.ending = False
        self._watcher: ChangeWatcher | None = None
        self._ready_until = float("-inf")

    # For handlers

    async def read(self, work: Callable[[], T]) -> T:
        return await self.pools["read"].call(work)

    async def write(self, call: Call, work: Callable[[], T]) -> T:
        return await self.pools["write"].call(partial(_run_traced, call, work))

    async def wait_for_end(self, job: Job, seconds: float) -> Job:
        """Return the job when it is over, or as it is after this many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while job.status not in TERMINAL and (left := deadline - loop.time()) > 0 and not self.ending:
            await self.claims.wait_for_change(min(left, END_POLL_SECONDS))
            await asyncio.sleep(END_PAUSE_SECONDS)
            job = await self.read(partial(self.ledger.get, job.id))
        return job

    def origins(self, job_ids: list[int]) -> dict[int, tuple[str, str]]:
        """Return the queue and the kind of each job that still exists."""
        return {id_: (found.queue, found.kind) for id_, found in self.ledger.outbox.origins(job_ids).items()}

    def check_ready(self) -> None:
        """Raise if the store does not answer. The result is kept for a second."""
        now = time.monotonic()
        if now >= self._ready_until:
            self.ledger.now()
            self._ready_until = now + READY_SECONDS

    def verbs_of(self, who: Principal) -> list[str]:
        """Return the verbs that the caller may use."""
        return who.can((one.verb, one.least) for one in ROUTES)

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
                self._watcher = ChangeWatcher(self.ledger, asyncio.get_running_loop(), self._notify)
                self._watcher.start()
                await self.clock.measure()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.end()
                if self.mcp is not None:
                    await self.mcp.close()
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
        self.feed.end()
        if self.mcp is not None:
            self.mcp.end()

    def _notify(self) -> None:
        self.claims.notify()
        self.feed.notify()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        record = access_log.AccessEntry(scope["method"], scope.get("client"))
        exchange = Exchange(scope, receive, send, record)
        if scope["raw_path"].startswith(API_PREFIX):
            exchange.clock = self.clock
        try:
            exchange.headers = read_headers(scope["headers"])
            reply, route = await self._answer(exchange)
            if isinstance(reply.body, Stream):
                await self._send_stream(exchange, reply.body, reply.headers)
            elif reply.body is not SENT:
                await exchange.send_answer(reply, route.status, self.read)
        except ClientGone:
            record.status = CLIENT_GONE
        except Exception as error:  # noqa: BLE001 - every error becomes an answer
            known = error if isinstance(error, HoldfastError) else _internal(error, record.request_id)
            record.code = known.code
            await exchange.send_problem(known)
        finally:
            seconds = time.monotonic() - began
            record.write(log, seconds)
            self.metrics.note(record.method, record.route, record.status, seconds)

    async def _answer(self, exchange: Exchange) -> tuple[Reply, Route]:
        headers, scope, record = exchange.headers, exchange.scope, exchange.record
        record.request_id = _request_id(headers)
        self.access.check_host(headers)
        exchange.more = self.access.origins.cors_headers(scope["method"], headers)
        if is_preflight(scope["method"], headers):
            return Reply(None, 204), PREFLIGHT
        path = scope["raw_path"].partition(b"?")[0]
        if path == MCP_PATH:
            await serve_mcp(self, exchange)
            return Reply(SENT), MCP
        try:
            found = self.router.find(scope["method"], path)
        except NotFound:
            page = self.pages.find(scope["method"], path, headers)
            if page is None:
                raise
            record.route = PAGE.path
            return page, PAGE
        route = found.route
        record.route = route.path
        if self.ending:
            raise Unavailable("the server is stopping", outcome="none")
        principal = await self.principal_of(route, exchange)
        with self.access.under_way(principal):
            call = Call(self.ledger, principal)
            call.server, call.parameters, call.exchange = self, found.parameters, exchange
            call.redaction = self.access.redaction(principal)
            call.traceparent, call.last_event_id = read_traceparent(headers.get("traceparent")), headers.get("last-event-id")
            call.incarnation = check_incarnation(headers.get("holdfast-incarnation"))
            call.query = read_query(scope["query_string"], route.query)
            if scope["method"] not in ("GET", "HEAD"):
                await self._read_write(call, route, exchange)
            answer = await self._run(route, call)
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        if call.is_repeated:
            reply = reply._replace(headers={**reply.headers, "Idempotent-Replayed": "true"})
        if call.redaction is not None and not isinstance(reply.body, Stream):
            reply = reply._replace(body=await self.read(partial(call.redaction.fields, reply.body)))
        tag = headers.get("if-none-match")
        if scope["method"] in ("GET", "HEAD") and tag is not None and tag == reply.headers.get("ETag"):
            return Reply(None, 304, reply.headers), route
        return reply, route

    async def principal_of(self, route: Route, exchange: Exchange) -> Principal:
        """Return the caller. Raise Unauthenticated, Forbidden, or TooManyRequests."""
        method, record = exchange.scope["method"], exchange.record
        principal = await self.access.identify(exchange.headers, exchange.peer, method, self.pools["read"].call)
        if not principal.is_anonymous:
            record.principal, record.role, record.token_id = principal.name, principal.role_name, principal.token_id
        elif route.least != "none":
            raise Unauthenticated("a valid token is needed")
        principal.check_role(route.least, route.verb, f"{route.summary[:1].lower()}{route.summary[1:].rstrip('.')}")
        if route.least == "admin" and not principal.sees_all:
            raise Forbidden("this is about the whole ledger, and this token covers some queues only", verb=route.verb)
        return principal

    async def _read_write(self, call: Call, route: Route, exchange: Exchange) -> None:
        """Read what a request that changes something has: its key, the expected revision, the actor and the body."""
        headers = exchange.headers
        given = headers.get("idempotency-key")
        if given is not None:
            call.request_id = limits.check_key("Idempotency-Key", given)
        elif route.pool != "beat":
            # The caller can send the request again with this key if the answer says that the outcome is unknown.
            call.request_id = secrets.token_hex(8)
        exchange.record.key = call.request_id
        call.expected_rev = etag_rev(headers.get("if-match"), "If-Match")
        call.act_as(call.principal.actor(call.incarnation, headers.get("holdfast-actor")))
        if route.body is not None:
            check_content_type(headers)
        body = await read_body(exchange.receive, headers, route.body_bytes_max)
        if route.body is None:
            return
        decode = partial(decode_body, body, route.body, route.body_bytes_max)
        # The event loop serves all callers: it does not read a large body by itself.
        call.body = decode() if len(body) <= SMALL_BYTES else await self.pools[route.pool].call(decode)

    async def _send_stream(self, exchange: Exchange, stream: Stream, more: dict[str, str]) -> None:
        """Send a stream until it ends, its client goes, or takes nothing for too long."""
        gone = asyncio.ensure_future(exchange.wait_until_gone())
        parts = stream.parts
        try:
            await exchange.begin(200, stream.media_type, {"X-Accel-Buffering": "no", **more})
            while not gone.done():
                following = asyncio.ensure_future(anext(parts, None))
                await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await following
                    break
                part = following.result()
                if part is None:
                    break
                await asyncio.wait_for(exchange.send_part(part), SEND_SECONDS_MAX)
            await exchange.finish()
        except (OSError, TimeoutError):
            pass
        finally:
            gone.cancel()
            await parts.aclose()  # type: ignore[attr-defined]

    async def _run(self, route: Route, call: Call) -> Any:
        if route.awaits:
            return await route.handler(call)
        return await self.pools[route.pool].call(partial(_run_traced, call, partial(route.handler, call)))


def _run_traced(call: Call, work: Callable[[], T]) -> T:
    """Call the ledger. Its spans continue the trace of the request."""
    with attached_to(call.traceparent):
        return call.run(work)


def _request_id(headers: Headers) -> str:
    """Return the caller's id of the request, for logs, or a new one."""
    given = headers.get("x-request-id") or ""
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _internal(error: Exception, instance: str) -> InternalError:
    """Log an error that is none of ours. Its text does not leave the server."""
    log.error("a request failed", exc_info=error, extra={"request_id": instance})
    return InternalError("the server failed to answer this request")
