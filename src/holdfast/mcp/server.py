"""The server itself: the protocol's requests on one side, the ledger's verbs on the other."""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from holdfast.errors import HoldfastError, NotFound, told
from holdfast.mcp import calling, resources, tools
from holdfast.mcp.answers import input_schema, plain
from holdfast.mcp.caller import Caller
from holdfast.mcp.guidance import INSTRUCTIONS, PROMPT, SESSIONS
from holdfast.mcp.seats import Seats
from holdfast.version import __version__

SESSION_HEADER = "mcp-session-id"
NAMELESS = "mcp"
NAME_CHARACTERS_MAX = 64
CALLS_PER_SESSION = 8
_ODD = re.compile(r"[^a-z0-9._-]+")

Context = ServerRequestContext[Any, Any]


class Reception:
    """Says who calls.

    The agent's name is `agent`, else what the client calls itself. Its session is `session`, where this process serves one
    client; else it follows from the transport's own, and where that has none there is none.
    """

    def __init__(self, seats: Seats, agent: str | None, session: str | None, draw: Callable[[], str]) -> None:
        self.seats = seats
        self._agent = agent
        self._session = session
        self._draw = draw
        self._turns: WeakValueDictionary[tuple[str, str | None], anyio.CapacityLimiter] = WeakValueDictionary()

    @property
    def serves_one(self) -> bool:
        return self._session is not None

    def turn(self, caller: Caller, arguments: Mapping[str, Any] | None) -> anyio.CapacityLimiter:
        """Calls of one session that may be under way at once: those that wait for somebody's lock take no other's turn."""
        named = (arguments or {}).get("session")
        key = caller.name, caller.own_session or (named if isinstance(named, str) else None)
        return self._turns.setdefault(key, anyio.CapacityLimiter(CALLS_PER_SESSION))

    def caller(self, ctx: Context) -> Caller:
        params = ctx.session.client_params
        name = self._agent or agent_name("" if params is None else params.client_info.name)
        if self.serves_one:
            self._agent = name  # Were it to introduce itself anew, its own jobs would be somebody else's.
        return Caller(self.seats, name, self._session or _transport_session(ctx), self._draw)


def agent_name(given: str) -> str:
    """What the client calls itself, as a name in the record: `Claude Code` is claude-code."""
    return _ODD.sub("-", given.lower()).strip("-._")[:NAME_CHARACTERS_MAX] or NAMELESS


def _transport_session(ctx: Context) -> str | None:
    secret = None if ctx.request is None else ctx.request.headers.get(SESSION_HEADER)
    return None if secret is None else session_name(secret)


def session_name(secret: str) -> str:
    """A transport's session by a name that anybody may know: with the id itself one could speak for its client."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def build(reception: Reception) -> Server[Any]:
    """The server. Whatever blocks does so in a thread of its own."""
    ledger = reception.seats.ledger

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.listed())

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name!r:.80}")
        caller = reception.caller(ctx)
        async with reception.turn(caller, params.arguments):
            return await anyio.to_thread.run_sync(partial(calling.call, tool, caller, params.arguments))

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=resources.RESOURCES)

    async def list_templates(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            reception.caller(ctx).calls()
            text = await anyio.to_thread.run_sync(resources.read, ledger, params.uri)
        except HoldfastError as error:
            code = types.INVALID_PARAMS if isinstance(error, NotFound) else types.INTERNAL_ERROR
            raise MCPError(code=code, message=error.message, data=plain(told(error))) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type=resources.JSON, text=text)
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "holdfast",
        version=__version__,
        title="Holdfast",
        description="A durable ledger of jobs",
        instructions=INSTRUCTIONS if reception.serves_one else INSTRUCTIONS + SESSIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        get_tool_input_schema=lambda name: input_schema(tools.TOOLS[name].ask) if name in tools.TOOLS else None,
    )


async def _list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    work = types.Prompt(name="work", title="Work through the ledger", description="Take up jobs until there are none.")
    return types.ListPromptsResult(prompts=[work])


async def _get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != "work":
        raise MCPError(code=types.INVALID_PARAMS, message=f"there is no prompt {params.name!r:.80}")
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=PROMPT))
    return types.GetPromptResult(messages=[message])
