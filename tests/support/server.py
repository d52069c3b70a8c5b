"""A real server on a loopback address in a thread of the test, and a client that sends raw requests."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

from holdfast import Ledger
from holdfast.core.hosts import AllowedHosts
from holdfast.server.access import AccessRules
from holdfast.server.app import Server
from holdfast.server.connections import ConnectionLimits, connection_class
from holdfast.server.mcp_mount import McpMount
from holdfast.server.origins import SiteOrigins
from holdfast.server.serve import bind_socket

STARTED_SECONDS = 20.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names are in lower case."""
    body: bytes
    cookies: tuple[str, ...] = ()
    """The values of all Set-Cookie headers."""

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests with one token. Each has a connection of its own."""

    def __init__(self, port: int, token: str | None = None, **headers: str) -> None:
        self.port = port
        self.token = token
        self._headers = headers

    def acting(self, **headers: str) -> "Client":
        """Return a client that also sends these headers, whose names have _ for -."""
        return Client(self.port, self.token, **{**self._headers, **headers})

    def send(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        if self.token is not None:
            named.setdefault("Authorization", f"Bearer {self.token}")
        sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if sent is not None:
            named.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STARTED_SECONDS)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.request(method, path, sent, named)
            response = connection.getresponse()
            headers = {name.lower(): text for name, text in response.getheaders()}
            return Answer(response.status, headers, response.read(), tuple(response.headers.get_all("Set-Cookie", ())))
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, raw=None, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, {} if body is None else body, raw=None, **headers)


class RunningServer:
    def __init__(self, ledger: Ledger, server: Server, port: int) -> None:
        self.ledger = ledger
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def client(self, role: str = "admin", name: str = "root", **options: Any) -> Client:
        """Return a client with a new token of this role."""
        if role == "admin":
            options.setdefault("act_as", ["*"])
        return Client(self.port, self.ledger.new_token(role, name, **options).text)

    def anonymous(self) -> Client:
        return Client(self.port)


class PromptServer(uvicorn.Server):
    """A server that starts and stops without the pauses of uvicorn, which are a tenth of a second each."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started_event = threading.Event()
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.started_event.set()
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(0.001)
        await self.lifespan.shutdown()

    def end(self) -> None:
        """Stop it from another thread."""
        assert self.loop is not None
        self.should_exit = True
        self.loop.call_soon_threadsafe(self._ended.set)


def end_watching(app: Server) -> None:
    """Wake the thread that waits for changes, so that it ends now, not when it looks next."""
    assert app._watcher is not None
    app._watcher._stopping.set()
    app.ledger._store.wake(["any"])


@contextmanager
def running(ledger: Ledger, **options: Any) -> Iterator[RunningServer]:
    """Serve a ledger until the block ends.

    `make_sign_in` returns how persons sign in to the server with this url. `mcp` lets agents reach it at /mcp.
    """
    with bind_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        origins = options.pop("origins", None) or SiteOrigins(AllowedHosts("127.0.0.1", ()), "http")
        make_sign_in = options.pop("make_sign_in", None)
        sign_in = None if make_sign_in is None else make_sign_in(f"http://127.0.0.1:{port}")
        mcp = McpMount(ledger) if options.pop("mcp", False) else None
        app = Server(ledger, AccessRules(ledger, origins, secure=False, **options), sign_in, mcp)
        guarded = connection_class(ConnectionLimits())
        config = uvicorn.Config(
            app, http=guarded, log_config=None, access_log=False, lifespan="on", server_header=False, ws="none"
        )
        server = PromptServer(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        assert server.started_event.wait(STARTED_SECONDS)
        try:
            yield RunningServer(ledger, app, port)
        finally:
            app.end()
            end_watching(app)
            server.end()
            thread.join(STARTED_SECONDS)
            assert not thread.is_alive()
