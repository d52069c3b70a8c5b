"""`holdfast mcp` at work: a ledger, a keeper, a server, until the client has gone or a signal comes."""

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from holdfast.core import limits
from holdfast.ledger import Ledger, admit
from holdfast.mcp.garbled import sort_out
from holdfast.mcp.keeper import Keeper
from holdfast.mcp.lines import Lines
from holdfast.mcp.seats import Seats
from holdfast.mcp.server import NAMELESS, Reception, build

log = logging.getLogger("holdfast.mcp")

STDIN = 0
LATEST_S = 6.0
"""How long after a signal whatever does not end is cut off."""


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
    token: str | None
    allowed_hosts: tuple[str, ...]


def serve_stdio(ledger: Ledger, wishes: Wishes) -> None:
    """One client, on standard input and output, until its end of input, SIGTERM or SIGINT."""
    seats = _seats(ledger, wishes)
    # A session that was named is to be found again by the process that comes next, with what it holds.
    with Keeper(seats, wishes.idle_s, keep=wishes.keep or wishes.session is not None) as keeper:
        server = build(Reception(seats, wishes.agent, wishes.session or draw_session(), draw_session))
        anyio.run(_until_told, _over_stdio, server, keeper)


def serve_http(ledger: Ledger, wishes: Wishes, door: Door) -> None:
    """Any number of clients, until SIGTERM or SIGINT. Raises OSError where it cannot listen."""
    from holdfast.mcp.http import bound, listener

    seats = _seats(ledger, wishes)
    with bound(door.host, door.port) as knocks, Keeper(seats, wishes.idle_s, keep=wishes.keep) as keeper:
        server = build(Reception(seats, wishes.agent, None, draw_session))
        listening = listener(
            server, door.host, allowed_hosts=door.allowed_hosts, token=door.token, idle_s=wishes.idle_s, ended=keeper.end
        )

        async def serve(_: Server[Any]) -> None:
            await listening.serve(sockets=[knocks])

        def stop() -> None:
            listening.should_exit = True

        anyio.run(_until_told, serve, server, keeper, stop)


def _seats(ledger: Ledger, wishes: Wishes) -> Seats:
    """Raises what is wrong with the names now, not with the first call."""
    for talkative in ("mcp", "uvicorn"):
        # The SDK tells the ids of sessions, with which anybody could speak for their clients.
        logging.getLogger(talkative).setLevel(logging.WARNING)
    admit.worker(NAMELESS if wishes.agent is None else wishes.agent, NAMELESS if wishes.session is None else wishes.session)
    return Seats(ledger, time.monotonic)


def draw_session() -> str:
    return secrets.token_hex(8)


async def _over_stdio(server: Server[Any]) -> None:
    lines = Lines(STDIN, limits.MCP_BODY_BYTES_MAX)
    on, sorted_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    try:
        async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write), anyio.create_task_group() as tasks:
            tasks.start_soon(sort_out, read, lines.refusals, on, write)
            log.info("serving MCP", extra={"url": "stdio"})
            await server.run(sorted_out, write, server.create_initialization_options())
            tasks.cancel_scope.cancel()
    except* OSError as gone:
        log.info("the client does not listen any more", extra={"error": str(gone.exceptions[0])})


async def _until_told(
    serve: Callable[[Server[Any]], Awaitable[None]],
    server: Server[Any],
    keeper: Keeper,
    stop: Callable[[], None] | None = None,
) -> None:
    """`stop` ends it in order; where there is none, it is cut off."""
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                number = await anext(aiter(signals))
            log.info("ending", extra={"signal": signal.Signals(number).name})
            _see_it_ends(keeper)
            (stop or tasks.cancel_scope.cancel)()

        tasks.start_soon(listen)
        await serve(server)
        tasks.cancel_scope.cancel()


def _see_it_ends(keeper: Keeper) -> None:
    """Whatever keeps the process from ending in order, a client that does not read or a lock that somebody has, it ends. Further
    signals change nothing: many who send one send another right after it."""

    def end() -> None:
        keeper.end()
        log.warning("cut off: something did not end in time")
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    timer = threading.Timer(LATEST_S, end)
    timer.daemon = True
    timer.start()
