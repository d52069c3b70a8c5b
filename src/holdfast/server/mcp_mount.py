"""MCP at `/mcp`: the tools of agents, with the tokens of the server.

The role and the queues of the token hold for each tool. A worker's token is the agent of its name. The packages of MCP take a
second to import and 37 MiB, so they are imported with the first request.
"""

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.agent import Brief, TaskDetails
from holdfast.core import limits
from holdfast.core.model import Actor, Role
from holdfast.errors import NotFound, Unauthenticated, Unavailable
from holdfast.ledger import Ledger
from holdfast.mcp.rights import CLIENT_SCOPE_KEY, RIGHTS_SCOPE_KEY, CallerRights, Need
from holdfast.server.call import claimable_queues, visible_related
from holdfast.server.principal import Least, Principal
from holdfast.server.redact import Redaction
from holdfast.server.routes import Nothing, Route, no_handler
from holdfast.server.throttles import StreamSlots
from holdfast.version import install_command

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
MCP_PATH = b"/mcp"
GRACE_SECONDS = 9.0
"""How long calls may continue after the server was told to stop. It is less than the server has."""
_NEEDS: dict[Need, Least] = {"read": "reader", "enqueue": "client_or_worker", "hold": "worker"}


MCP = Route("*", "/mcp", "reader", "mcp", no_handler, None, Nothing, None, 200, "write", limits.MCP_BODY_BYTES_MAX, True, "")
"""The route of every request of MCP, for the access rules and the log."""


class PrincipalRights(CallerRights):
    """The rights of a token in tools."""

    def __init__(self, ledger: Ledger, principal: Principal, actor: Actor | None, redaction: Redaction | None) -> None:
        self._ledger = ledger
        self._principal = principal
        self._actor = actor
        self._redaction = redaction
        self.hides_keys = redaction is not None and redaction.hides_keys
        self._is_worker = actor is not None and actor.role is Role.WORKER
        # Others have a name that no worker's token has, so that they cannot act for its sessions.
        self.agent = actor.name if actor is not None and self._is_worker else f"{principal.role}:{principal.name}"

    def may(self, need: Need) -> bool:
        return self._principal.may(_NEEDS[need]) and (need != "hold" or self._is_worker)

    def sees(self, queue: str) -> bool:
        return self._principal.sees(queue)

    def check_visible(self, ledger: Ledger, job_id: int) -> None:
        if not self._principal.sees_all:
            super().check_visible(ledger, job_id)

    def claimable(self, ledger: Ledger, queues: list[str] | None) -> list[str] | None:
        if queues is not None:
            for queue in queues:
                self.check_queue(queue)
            return queues
        return claimable_queues(self._principal, ledger)

    def actor(self, session: str | None) -> Actor | None:
        actor = self._actor
        if actor is None or not self._is_worker or session is None:
            return actor
        return msgspec.structs.replace(actor, incarnation=session)

    def show(self, answer: Any) -> Any:
        if isinstance(answer, Brief | TaskDetails):
            answer = visible_related(self._principal, self._ledger, answer)
        return answer if self._redaction is None else self._redaction.fields(answer)

    def show_json(self, part: str, body: bytes) -> bytes:
        return body if self._redaction is None else self._redaction.json(part, body)


def _build(ledger: Ledger) -> Any:
    from holdfast.mcp.app import McpApp

    return McpApp(ledger, GRACE_SECONDS)


async def serve_mcp(server: Any, exchange: Any) -> None:
    """Let MCP answer a request, after the checks of every other one. Its streams count as streams."""
    exchange.record.route = MCP.path
    mount: McpMount | None = server.mcp
    if mount is None:
        raise NotFound("this server has no MCP", action=f"{install_command('mcp')}, and leave [server] mcp at true.")
    if server.ending:
        raise Unavailable("the server is stopping", outcome="none")
    principal: Principal = await server.principal_of(MCP, exchange)
    if principal.session is not None:
        raise Unauthenticated("a valid token is needed", action="MCP takes a token, not the session of a browser.")
    actor = principal.actor(None, exchange.headers.get("holdfast-actor"))
    rights = PrincipalRights(server.ledger, principal, actor, server.access.redaction(principal))
    scope = {**exchange.scope, CLIENT_SCOPE_KEY: principal.key, RIGHTS_SCOPE_KEY: rights}
    if exchange.scope["method"] != "GET":
        with server.access.under_way(principal):
            await (await mount.started())(scope, exchange.receive, exchange.pass_on)
        return
    slots: StreamSlots = server.feed.slots
    with server.access.under_way(principal):
        slots.check(principal.key)
    with slots.slot(principal.key):
        await (await mount.started())(scope, exchange.receive, exchange.pass_on)


class McpMount:
    """Starts the application of MCP with the first request, and ends it with the server. Used on the event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ending, self._closed = asyncio.Event(), asyncio.Event()
        self._app: asyncio.Future[Any] | None = None
        self._life: asyncio.Task[None] | None = None

    @staticmethod
    def is_installed() -> bool:
        return importlib.util.find_spec("mcp") is not None

    async def started(self) -> Application:
        """Return the application. Raise Unavailable if the server ends."""
        if self._ending.is_set():
            raise Unavailable("the server is stopping", outcome="none")
        if self._app is None:
            self._app = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._app))
        return await asyncio.shield(self._app)

    async def _live(self, started: "asyncio.Future[Any]") -> None:
        try:
            app = await asyncio.to_thread(_build, self._ledger)
        except Exception as error:  # noqa: BLE001 - the request that waits for it gets it
            self._app = None
            started.set_exception(error)
            return
        async with app.run():
            started.set_result(app)
            await self._ending.wait()
            app.end()
            await self._closed.wait()

    def end(self) -> None:
        """End open streams, and calls after their grace."""
        self._ending.set()

    async def close(self) -> None:
        """Release the jobs that are held for clients. Call it after all requests have ended."""
        self._ending.set()
        self._closed.set()
        if self._life is not None:
            await self._life
