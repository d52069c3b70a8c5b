"""The dashboard's files. They are read once, when the server starts; a path outside of them does not exist."""

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from holdfast.server.call import Reply
from holdfast.server.origins import Headers
from holdfast.server.routes import Nothing, Route, no_handler

FOLDER = Path(__file__).with_name("dashboard")
INDEX = "index.html"
VERSION_MARK = b"@VERSION@"
"""Stands for the version of the files in index.html."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_FEATURES = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "microphone", "payment", "usb")
DOCUMENT_HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{name}=()" for name in _FEATURES),
}
"""For what a browser can show by itself. Scripts and styles follow the policy of the page that loads them."""
_DOCUMENTS = (".html", ".svg")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = frozenset(
    {"", "agents", "attention", "dead-letters", "events", "groups", "help", "jobs", "kinds", "limits", "login"}
    | {"policies", "queues", "runs", "schedules", "seals", "sinks", "tokens", "workers"}
)
"""First parts of the paths that show a page."""
PAGES_OF_ONE = frozenset({"groups", "jobs", "kinds", "limits", "queues", "workers"})
"""Pages that also show one thing, named by the second part of the path."""


PAGE = Route("GET", "/{page}", "none", "page", no_handler, None, Nothing, None, 200, "read", 0, False, "")
"""The route of every page and file in the access log."""


class PageFile(NamedTuple):
    body: bytes
    zipped: bytes
    media_type: str
    tag: str
    headers: dict[str, str]

    def reply(self, headers: Headers, cache: str) -> Reply:
        """Answer the file, compressed if the client takes that, or 304 if the client has it."""
        takes_gzip = "gzip" in (headers.get("accept-encoding") or "")
        tag = f'"{self.tag}{"-gz" if takes_gzip else ""}"'
        more = {**self.headers, "Vary": "Accept-Encoding", "Cache-Control": cache, "ETag": tag}
        if headers.get("if-none-match") == tag:
            return Reply(None, 304, more)
        more["Content-Type"] = self.media_type
        if takes_gzip:
            more["Content-Encoding"] = "gzip"
        return Reply(self.zipped if takes_gzip else self.body, 200, more)


class Pages:
    """Finds the file of a path: the dashboard's page, or one of its assets."""

    def __init__(self, folder: Path = FOLDER) -> None:
        bodies = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in _TYPES
        }
        self.version = _hash(b"".join(name.encode() + body for name, body in bodies.items()))
        """Another one for other files, so that browsers may keep assets for ever."""
        bodies[INDEX] = bodies[INDEX].replace(VERSION_MARK, self.version.encode())
        files = {name: _file(name, body) for name, body in bodies.items()}
        self._index = files.pop(INDEX)
        self._assets = {f"/assets/{self.version}/{name}".encode(): file for name, file in files.items()}

    def find(self, method: str, raw_path: bytes, headers: Headers) -> Reply | None:
        """Return the answer to a path that no route has. None if it is no page and no asset."""
        if method not in ("GET", "HEAD"):
            return None
        asset = self._assets.get(raw_path)
        if asset is not None:
            return asset.reply(headers, "public, max-age=31536000, immutable")
        return self._index.reply(headers, "no-cache") if is_page(raw_path) else None


def is_page(raw_path: bytes) -> bool:
    """Return whether a path is one of the dashboard's addresses."""
    first, *rest = raw_path.decode("ascii", "replace").split("/")[1:] or ["?"]
    if not rest:
        return first in PAGES
    return first in PAGES_OF_ONE and len(rest) == 1 and _is_name(rest[0])


def _is_name(part: str) -> bool:
    try:
        name = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return False
    return name not in ("", ".", "..") and "\\" not in name and name.isprintable()


def _file(name: str, body: bytes) -> PageFile:
    suffix = Path(name).suffix
    headers = DOCUMENT_HEADERS if suffix in _DOCUMENTS else {}
    return PageFile(body, _zipped(body), _TYPES[suffix], _hash(body), headers)


@cache
def _zipped(body: bytes) -> bytes:
    """Compress a file once, however many servers a process has."""
    return gzip.compress(body, 9, mtime=0)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
