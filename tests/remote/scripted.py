"""A server that gives prepared answers, one for each request."""

import contextlib
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

JSON, PROBLEM, PAGE = "application/json", "application/problem+json", "text/html"
Prepared = tuple[int, str, Any, dict[str, str]]
"""Status, content type, body and headers."""
ABOUT: Prepared = (200, JSON, {"ledger_id": "k3vwxq8m", "schema": 1}, {})
ME: Prepared = (200, JSON, {"name": "root", "role": "admin", "act_as": ["*"]}, {})


class Drip(NamedTuple):
    """An answer that never ends: some bytes at once, and then one after the other."""

    at_once: bytes
    without_end: bytes


class Scripted:
    """Answers requests in order, the two that open a ledger first. It keeps what it was asked."""

    def __init__(self, *answers: Prepared | Drip) -> None:
        self.answers = deque[Prepared | Drip]([ABOUT, ME, *answers])
        self._ending = threading.Event()
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.asked.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
                answer = script.answers.popleft()
                if isinstance(answer, Drip):
                    self._drip(answer)
                    return
                status, kind, body, headers = answer
                encoded = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
                self.send_response(status)
                for name, text in {"Content-Type": kind, "Content-Length": str(len(encoded)), **headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(encoded)

            def _drip(self, answer: Drip) -> None:
                self.close_connection = True
                self.wfile.write(answer.at_once)
                with contextlib.suppress(OSError):
                    while not script._ending.wait(0.02):
                        self.wfile.write(answer.without_end)

            do_GET = do_POST = _answer  # noqa: N815 - named by the base class

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the base class
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()


def refusal(status: int, code: str, **fields: Any) -> Prepared:
    headers = fields.pop("headers", {})
    return status, PROBLEM, {"code": code, "detail": "no", "action": "Wait.", "context": {}, **fields}, headers
