"""`holdfast mcp` at work: a ledger, a keeper, a server, until the client has gone or a signal comes."""

import logging
import os
import secrets
import time
from typing import Any, NamedTuple, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from holdfast.core import limits
from holdfast.ledger import Ledger, admit
from holdfast.mcp.keeper import END_S, Keeper
from holdfast.mcp.lines import Lines
from holdfast.mcp.seats import Seats
from holdfast.mcp.server import NAMELESS, Reception, build
from holdfast.mcp.signals import Ending
from holdfast.mcp.stdio import STDIN, Inbox, Outbox, wire

log = logging.getLogger("holdfast.mcp")


class Wishes(NamedTuple):
    """How the server is to behave. `session` is for a process with one client alone."""

    agent: str | None
    session: str | None
    idle_s: float
    keep: bool


class Door(NamedTuple):
    """Where it listens, and to whom."""

    host: str
    port: int
    tokens: tuple[str, ...]
    allowed_hosts: tuple[str, ...]


def serve_stdio(ledger: Ledger, wishes: Wishes) -> None:
    """One client, on standard input and output, until its end of input, SIGTERM or SIGINT."""
    seats = _seats(ledger, wishes)
    # A session that was named is to be found again by the process that comes next, with what it holds.
    with Ending() as ending, Keeper(seats, wishes.idle_s, keep=wishes.keep or wishes.session is not None) as keeper:
        server = build(Reception(seats, wishes.agent, wishes.session or draw_session(), draw_session))
        anyio.run(_over_stdio, server, ending)
    _leave(keeper)


def serve_http(ledger: Ledger, wishes: Wishes, door: Door) -> None:
    """Any number of clients, until SIGTERM or SIGINT. Raises OSError where it cannot listen."""
    from holdfast.mcp.http import bound, listener

    seats = _seats(ledger, wishes, clients=max(1, len(door.tokens)))
    with bound(door.host, door.port) as knocks, Ending() as ending, Keeper(seats, wishes.idle_s, keep=wishes.keep) as keeper:
        server = build(Reception(seats, wishes.agent, None, draw_session))
        listening = listener(
            server, door.host, allowed_hosts=door.allowed_hosts, tokens=door.tokens, idle_s=wishes.idle_s, ended=keeper.end
        )

        async def serve() -> None:
            ending.listen(listening.stop)
            await listening.serve(sockets=[knocks])

        anyio.run(serve)
    _leave(keeper)


def _leave(keeper: Keeper) -> None:
    """Where a thread is held up by the ledger, so would be whoever closes it."""
    if keeper.is_stuck:
        os._exit(0)


def _seats(ledger: Ledger, wishes: Wishes, clients: int = 1) -> Seats:
    """Raises what is wrong with the names now, not with the first call."""
    for talkative in ("mcp", "uvicorn"):
        # The SDK tells the ids of sessions, with which anybody could speak for their clients.
        logging.getLogger(talkative).setLevel(logging.WARNING)
    admit.worker(NAMELESS if wishes.agent is None else wishes.agent, NAMELESS if wishes.session is None else wishes.session)
    return Seats(ledger, time.monotonic, clients)


def draw_session() -> str:
    return secrets.token_hex(8)


async def _over_stdio(server: Server[Any], ending: Ending) -> None:
    """A signal cuts it off. What is under way when the input ends has a while to be answered."""
    with anyio.CancelScope() as scope, wire() as descriptor:

        def ended() -> None:
            scope.deadline = anyio.current_time() + END_S

        ending.listen(scope.cancel)
        out = Outbox(descriptor)
        inbox = Inbox(Lines(STDIN, limits.MCP_BODY_BYTES_MAX), out, ended)
        streams = cast("anyio.AsyncFile[str]", inbox), cast("anyio.AsyncFile[str]", out)
        try:
            async with stdio_server(*streams) as (read, write):
                log.info("serving MCP", extra={"url": "stdio"})
                await server.run(read, write, server.create_initialization_options())
        except* OSError as gone:
            log.info("the client does not listen any more", extra={"error": str(gone.exceptions[0])})
