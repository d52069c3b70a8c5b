"""A server that the tests of a module share: each serves a ledger of its own by it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Self

import uvicorn

from holdfast import Ledger
from holdfast.core.hosts import AllowedHosts
from holdfast.server.access import AccessRules
from holdfast.server.app import Server
from holdfast.server.connections import ConnectionLimits, connection_class
from holdfast.server.origins import SiteOrigins
from tests.support.server import STARTED_SECONDS, PromptServer, RunningServer, end_watching


class Host:
    """A listening server. It serves one ledger at a time."""

    def __init__(self) -> None:
        self._app: Server | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        # Accepted sockets inherit this. asyncio sets it only on sockets that it has made itself.
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listening.getsockname()[1]
        config = uvicorn.Config(
            self._answer,
            http=connection_class(ConnectionLimits()),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            interface="asgi3",
        )
        self._server = PromptServer(config)
        serve = self._server.serve
        self._thread = threading.Thread(target=lambda: asyncio.run(serve(sockets=[self._listening])), name="server", daemon=True)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)

    @contextmanager
    def serving(self, ledger: Ledger, **options: Any) -> Iterator[RunningServer]:
        origins = options.pop("origins", None) or SiteOrigins(AllowedHosts("127.0.0.1", ()), "http")
        app = Server(ledger, AccessRules(ledger, origins, secure=False, **options))
        messages: asyncio.Queue[str] = asyncio.Queue()
        answered: SimpleQueue[str] = SimpleQueue()
        loop = self._server.loop
        assert loop is not None

        async def receive() -> dict[str, str]:
            return {"type": await messages.get()}

        async def send(message: dict[str, str]) -> None:
            answered.put(message["type"])

        def tell(message: str) -> None:
            loop.call_soon_threadsafe(messages.put_nowait, message)
            assert answered.get(timeout=STARTED_SECONDS) == f"{message}.complete"

        lifespan = asyncio.run_coroutine_threadsafe(app({"type": "lifespan"}, receive, send), loop)
        tell("lifespan.startup")
        self._app = app
        try:
            yield RunningServer(ledger, app, self.port)
        finally:
            end_watching(app)
            tell("lifespan.shutdown")
            lifespan.result(STARTED_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._server.started_event.wait(STARTED_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()
        self._thread.join(STARTED_SECONDS)
        assert not self._thread.is_alive()
        self._listening.close()
