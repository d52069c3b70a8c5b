"""The server itself: the protocol's requests on one side, the ledger's verbs on the other."""

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server

from holdfast.errors import HoldfastError, LimitExceeded, NotFound, ValidationError, told
from holdfast.mcp import calling, resources, tools
from holdfast.mcp.answers import input_schema, plain
from holdfast.mcp.caller import Caller
from holdfast.mcp.guidance import INSTRUCTIONS, PROMPT, SESSIONS
from holdfast.mcp.seats import Seats
from holdfast.version import __version__

SESSION_HEADER = "mcp-session-id"
CLIENT = "holdfast.client"
"""Under which name a request's scope says whose token it came with."""
NAMELESS = "mcp"
NAME_CHARACTERS_MAX = 64
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

    @property
    def serves_one(self) -> bool:
        return self._session is not None

    def caller(self, ctx: Context) -> Caller:
        params = ctx.session.client_params
        name = self._agent or agent_name("" if params is None else params.client_info.name)
        if self.serves_one and params is not None:
            self._agent = name  # Were it to introduce itself anew, its own jobs would be somebody else's.
        client = 0 if ctx.request is None else ctx.request.scope.get(CLIENT, 0)
        return Caller(self.seats, name, self._session or _transport_session(ctx), self._draw, client)

    async def hear(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Every message comes by here: whoever sends one is there, and stays who it was when it came."""
        if ctx.method == "initialize" and ctx.session.client_params is not None:
            raise MCPError(code=types.INVALID_REQUEST, message="this session has begun: open another one to begin anew")
        self.caller(ctx).calls()
        return await call_next(ctx)


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
    """The server. Whatever blocks does so in a thread, of which each session has a few."""
    ledger, calls = reception.seats.ledger, reception.seats.calls

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.listed())

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name!r:.80}")
        caller = reception.caller(ctx)
        key = caller.own_session or str((params.arguments or {}).get("session"))
        return await calls.call(key, partial(calling.call, tool, caller, params.arguments))

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=resources.RESOURCES)

    async def list_templates(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            text = await calls.call(reception.caller(ctx).own_session, partial(resources.read, ledger, params.uri))
        except HoldfastError as error:
            code = types.INVALID_PARAMS if isinstance(error, NotFound | ValidationError | LimitExceeded) else types.INTERNAL_ERROR
            raise MCPError(code=code, message=error.message, data=plain(told(error))) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type=resources.JSON, text=text)
        return types.ReadResourceResult(contents=[contents])

    server = Server[Any](
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
    server.middleware.append(reception.hear)
    return server


async def _list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    work = types.Prompt(name="work", title="Work through the ledger", description="Take up jobs until there are none.")
    return types.ListPromptsResult(prompts=[work])


async def _get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != "work":
        raise MCPError(code=types.INVALID_PARAMS, message=f"there is no prompt {params.name!r:.80}")
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=PROMPT))
    return types.GetPromptResult(messages=[message])
