"""The table of routes. The router, the OpenAPI document, the access checks and the tests are made from it."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.core import limits
from holdfast.errors import MethodNotAllowed, NotFound, ValidationError
from holdfast.server.principal import Least

Pool = Literal["read", "write", "beat"]
"""Threads for calls of the ledger. A slow read must never delay a heartbeat, so each kind of call has its own."""
LOGIN_PATH, CALLBACK_PATH = "/auth/login", "/auth/callback"
"""Where the sign-in of a person begins, and where the identity provider sends the browser back to."""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request or an answer without fields."""


class Route(NamedTuple):
    method: str
    path: str
    """Parts in braces are parameters: `/v1/jobs/{job_id}/cancel`."""
    least: Least
    verb: str
    """The name of what the caller does, as `/v1/me` lists it."""
    handler: Callable[..., Any]
    body: type | None
    """The type of the request's body. None: it has none."""
    query: type
    answer: Any
    """The type of the answer's body. None: it has none, or it is a stream."""
    status: int
    pool: Pool
    body_bytes_max: int
    awaits: bool
    """The handler is a coroutine: it waits or streams, and uses threads by itself."""
    summary: str
    media: tuple[str, ...] = ()
    """The types of an answer that is not JSON."""

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


ROUTES: list[Route] = []
"""Filled by the modules of handlers when they are imported."""


def route(
    method: str,
    path: str,
    least: Least,
    *,
    answer: Any,
    body: type | None = None,
    query: type = Nothing,
    status: int = 200,
    pool: Pool | None = None,
    body_bytes_max: int = limits.HTTP_BODY_BYTES_MAX,
    awaits: bool = False,
    verb: str | None = None,
    media: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the table. The first line of its docstring becomes the summary."""

    def add(handler: Callable[..., Any]) -> Callable[..., Any]:
        ROUTES.append(
            Route(
                method,
                path,
                least,
                verb or handler.__name__,
                handler,
                body,
                query,
                answer,
                status,
                pool or ("read" if method == "GET" else "write"),
                body_bytes_max,
                awaits,
                (handler.__doc__ or "").partition("\n")[0],
                media,
            )
        )
        return handler

    return add


def no_handler(_: object) -> None:
    """Stand for the handler of a route outside the table."""
    raise AssertionError("such a request is answered without a handler")


PREFLIGHT = Route("OPTIONS", "*", "none", "options", no_handler, None, Nothing, None, 204, "read", 0, False, "")
"""What a browser asks before a page of another origin calls."""


class Found(NamedTuple):
    route: Route
    parameters: dict[str, str]


class Router:
    """Finds the route of a method and a path. HEAD is answered by GET."""

    def __init__(self, routes: list[Route]) -> None:
        self._root: dict[Any, Any] = {}
        self._fixed = {(one.method, one.path.encode()): Found(one, {}) for one in routes if "{" not in one.path}
        """Routes without parameters. A part by name goes before a parameter, so that no other route is meant."""
        for one in routes:
            node = self._root
            for part in one.path.split("/")[1:]:
                node = node.setdefault("{}" if part.startswith("{") else part, {})
            methods = node.setdefault(None, {})
            assert one.method not in methods, f"{one.method} {one.path} is there twice"
            methods[one.method] = one

    def find(self, method: str, raw_path: bytes) -> Found:
        """Return the route and its parameters. Raise NotFound, or MethodNotAllowed with the methods that are allowed."""
        fixed = self._fixed.get((method, raw_path))
        if fixed is not None:
            return fixed
        parts = raw_path.split(b"/")[1:]
        for methods, values in self._walk(self._root, parts):
            one = methods.get("GET" if method == "HEAD" else method)
            if one is None:
                allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
                raise MethodNotAllowed(f"{one_line(method)} is not allowed here", allowed=allowed)
            return Found(one, dict(zip(one.parameters, values, strict=True)))
        raise NotFound("there is no such route", action="See /openapi.json for all routes.")

    def _walk(self, node: dict[Any, Any], parts: list[bytes]) -> Iterator[tuple[dict[str, Route], list[str]]]:
        """Yield the methods at the end of the path, with the values of parameters. A part by name goes before a parameter."""
        if not parts:
            if None in node:
                yield node[None], []
            return
        first, rest = parts[0], parts[1:]
        name = first.decode("ascii", "replace")
        if name in node and name != "{}":
            yield from self._walk(node[name], rest)
        if "{}" in node and first:
            value = decoded_part(first)
            for methods, values in self._walk(node["{}"], rest):
                yield methods, [value, *values]


def decoded_part(part: bytes) -> str:
    """Decode a part of a path once. A part that is not UTF-8 is refused."""
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise ValidationError("the path is not UTF-8", field="path") from None


def one_line(text: str) -> str:
    """Return a text of the request for a message: at most 200 characters, without control characters."""
    return "".join(character if character.isprintable() else "?" for character in text[:200])
