"""A real server on a loopback address in a thread of the test, and a client that sends raw requests."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

import uvicorn

from holdfast import Ledger
from holdfast.core.hosts import AllowedHosts
from holdfast.server.access import Gatekeeper
from holdfast.server.app import Server
from holdfast.server.connections import ConnectionLimits, connection_class
from holdfast.server.origins import SiteOrigins

STARTED_SECONDS = 20.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names are in lower case."""
    body: bytes

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
            return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())
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


class Host:
    """A listening server. It serves one ledger at a time, so the tests of a module can share it."""

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
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="server", daemon=True)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._started.set)
        await self._server.serve(sockets=[self._listening])

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)

    @contextmanager
    def serving(self, ledger: Ledger, **options: Any) -> Iterator[RunningServer]:
        origins = options.pop("origins", None) or SiteOrigins(AllowedHosts("127.0.0.1", ()), "http")
        app = Server(ledger, Gatekeeper(ledger, origins, secure=False, **options))
        messages: asyncio.Queue[str] = asyncio.Queue()
        answered: SimpleQueue[str] = SimpleQueue()
        assert self._loop is not None
        loop = self._loop

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
            tell("lifespan.shutdown")
            lifespan.result(STARTED_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(STARTED_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(STARTED_SECONDS)
        assert not self._thread.is_alive()
        self._listening.close()


@contextmanager
def running(ledger: Ledger, **options: Any) -> Iterator[RunningServer]:
    """Serve a ledger until the block ends, on a server of its own."""
    with Host() as host, host.serving(ledger, **options) as server:
        yield server
