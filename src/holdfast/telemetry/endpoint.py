"""A few pages over HTTP from a daemon thread: for scrapers and probes, not for people."""

import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from holdfast.core.limits import check_integer
from holdfast.errors import ValidationError

PORT_MAX = 65_535
CLIENT_SECONDS_MAX = 10
"""How long a client may take to say what it wants."""
_PLAIN = "text/plain; charset=utf-8"

Page = tuple[str, Callable[[], bytes]]
"""A content type, and what makes the content."""

_log = logging.getLogger("holdfast.telemetry")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.pages = pages
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's concern."""
        _log.debug("a request for metrics was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS_MAX
    server_version = "holdfast"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, _PLAIN, b"there is no such page\n")
            return
        content_type, make = page
        try:
            body = make()
        except Exception:  # noqa: BLE001 - whatever it was, the scraper is told and the log keeps it
            _log.exception("a page could not be made")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"this page could not be made; the log says why\n")
            return
        self._answer(HTTPStatus.OK, content_type, body)

    do_HEAD = do_GET  # noqa: N815 - the base's name

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        _log.debug(format, *args)


class Endpoint:
    """Serves `pages`, by path, and `/healthz`, until it is closed or the process ends."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        check_integer("port", port, 0, PORT_MAX)
        try:
            self._server = _Server((host, port), {"/healthz": (_PLAIN, lambda: b"ok\n"), **pages})
        except OSError as error:
            raise ValidationError(f"cannot listen on {host}:{port}: {error}", field="port") from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-endpoint", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
