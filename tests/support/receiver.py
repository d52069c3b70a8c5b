"""A real HTTP receiver of webhooks, in its own thread."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from standardwebhooks.webhooks import Webhook

SECRET = "whsec_" + "aG9sZGZhc3QgaG9sZGZhc3QgaG9sZGZhc3Q="


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["webhook-id"]

    def event(self, secret: str = SECRET) -> dict[str, Any]:
        """Verify the signature with an independent library and return the CloudEvent."""
        Webhook(secret).verify(self.body, self.headers)
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


Answer = Callable[[BaseHTTPRequestHandler, int], None]
"""A function that answers the receiver's nth request."""


def status(code: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


OK = status(204)


class Receiver:
    """Keep the received requests, and answer as configured."""

    def __init__(self, answer: Answer = OK, *, tls: SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.answer = answer
        self.released = threading.Event()
        """Set at the end, so that handlers which hang on purpose end."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body))
                receiver.answer(self, len(receiver.received))

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hooks?token=hidden"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def keys(self) -> list[str]:
        return [received.key for received in self.received]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
