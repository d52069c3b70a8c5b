"""`holdfast mcp`: serve one client on stdio until it disconnects or a signal arrives."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from holdfast.core import limits
from holdfast.keeping.signals import stop_on_signals
from holdfast.ledger import Ledger, validate
from holdfast.mcp.server import DEFAULT_AGENT_NAME, CallerResolver, build_server, new_session_name, quiet_sdk_logger
from holdfast.mcp.sessions import SHUTDOWN_S, ClientSessions, SessionLeases
from holdfast.mcp.stdio import STDIN, LineReader, MessageReader, MessageWriter, reserve_stdout

log = logging.getLogger("holdfast.mcp")

INTERRUPTED_EXIT_CODE = 130


class Shutdown:
    """Stops the server on the first SIGTERM or SIGINT. A second one ends the process."""

    def __init__(self) -> None:
        self._is_requested = False
        self._on_first_signal: Callable[[signal.Signals], None] = lambda number: None

    def call_on_signal(self, stop: Callable[[], None]) -> None:
        """Call `stop` in the running loop on the first signal; call it now if that signal has arrived already."""
        loop = asyncio.get_running_loop()

        def end(number: signal.Signals) -> None:
            log.info("ending", extra={"signal": number.name})
            stop()

        def begin(number: signal.Signals) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(end, number)

        self._on_first_signal = begin
        if self._is_requested:
            stop()

    def on_signal(self, number: signal.Signals) -> None:
        """Handle a signal, in the thread that reads signals."""
        if self._is_requested:
            os._exit(INTERRUPTED_EXIT_CODE)
        self._is_requested = True
        self._on_first_signal(number)


class ServeOptions(NamedTuple):
    """Options of the server."""

    agent: str | None
    session: str | None
    idle_s: float
    keep: bool
    labels: tuple[str, ...] = ()


def serve_stdio(ledger: Ledger, options: ServeOptions) -> None:
    """Serve one client on standard input and output until the input ends, SIGTERM or SIGINT."""
    sessions, shutdown = _create_sessions(ledger, options), Shutdown()
    # A session with a given name keeps its jobs, so that the next process can continue them.
    with (
        stop_on_signals(shutdown.on_signal, hangup=False),
        SessionLeases(sessions, options.idle_s, keep=options.keep or options.session is not None) as leases,
    ):
        server = build_server(CallerResolver(sessions, options.agent, options.session or new_session_name(), new_session_name))
        anyio.run(_run_stdio, server, shutdown)
    if leases.is_stuck:
        os._exit(0)  # a thread is still blocked in the ledger: closing the ledger would block too


def _create_sessions(ledger: Ledger, options: ServeOptions) -> ClientSessions:
    """Return the sessions. Raise an error for an invalid agent or session name now, not with the first call."""
    quiet_sdk_logger()
    validate.worker(
        DEFAULT_AGENT_NAME if options.agent is None else options.agent,
        DEFAULT_AGENT_NAME if options.session is None else options.session,
    )
    labels = validate.labels("labels", options.labels, limits.LABELS_PER_WORKER_MAX)
    return ClientSessions(ledger, time.monotonic, labels=labels)


async def _run_stdio(server: Server[Any], shutdown: Shutdown) -> None:
    """Serve until the input ends or a signal arrives. After the end of input, running calls have SHUTDOWN_S to finish."""
    with anyio.CancelScope() as scope, reserve_stdout() as descriptor:

        def ended() -> None:
            scope.deadline = anyio.current_time() + SHUTDOWN_S

        shutdown.call_on_signal(scope.cancel)
        out = MessageWriter(descriptor)
        messages = MessageReader(LineReader(STDIN, limits.MCP_BODY_BYTES_MAX), out, ended)
        streams = cast("anyio.AsyncFile[str]", messages), cast("anyio.AsyncFile[str]", out)
        try:
            async with stdio_server(*streams) as (read, write):
                log.info("serving MCP")
                await server.run(read, write, server.create_initialization_options())
        except* OSError as errors:
            log.info("the client has closed its input", extra={"error": str(errors.exceptions[0])})
