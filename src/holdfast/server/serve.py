"""Run the server: the listening socket, the services of the ledger, and an end in order."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.errors import HoldfastError
from holdfast.ledger import Ledger
from holdfast.server.access import Gatekeeper
from holdfast.server.app import Server
from holdfast.server.connections import ConnectionLimits, connection_class
from holdfast.services.pruner import PruneService
from holdfast.services.sweeper import SweepService
from holdfast.services.ticker import Service, Ticker
from holdfast.signals import stop_on_signals

log = logging.getLogger("holdfast.server")

GRACE_SECONDS = 10
"""How long requests may continue after the server was told to stop."""


class UseService:
    """Records the last use of tokens and sessions, so that no request has to wait for it."""

    name = "token use"
    every_s = 60.0

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    def tick(self) -> int:
        return self._gatekeeper.tick()

    def close(self) -> None:
        with contextlib.suppress(HoldfastError):
            self._gatekeeper.tick()


def ledger_services(ledger: Ledger, gatekeeper: Gatekeeper, **kept: Any) -> list[Service]:
    """Return what a server does beside its requests. Duties make one process of a fleet do each."""
    holder = f"server#{ledger.incarnation}"
    return [SweepService(ledger, holder), PruneService(ledger, holder, **kept), UseService(gatekeeper)]


class LedgerHttpServer(uvicorn.Server):
    """A server that leaves signals to the program. The first request to stop lets requests under way end, the second does not."""

    def __init__(
        self,
        app: Server,
        *,
        bounds: ConnectionLimits | None = None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection_class(bounds or ConnectionLimits()),
                loop="uvloop",
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=GRACE_SECONDS,
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
            )
        )
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The program handles signals itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        log.info("serving", extra={"addresses": [str(one.getsockname()) for one in sockets or ()]})

    def stop(self, _: signal.Signals | None = None) -> None:
        """Begin to stop. Called from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._app.end()


def run(server: LedgerHttpServer, listening: socket.socket, services: Sequence[Service]) -> None:
    """Serve until SIGTERM or SIGINT."""
    ticker = Ticker(services)
    ticker.start()
    try:
        with stop_on_signals(server.stop, hangup=False):
            asyncio.run(server.serve(sockets=[listening]))
    finally:
        ticker.close()
