"""Rules about the headers of a request: host names, forged requests (CSRF) and pages of other origins (CORS).

They are pure functions of the headers, whose names are in lower case.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.core.hosts import AllowedHosts, parse_host_and_port
from holdfast.errors import Forbidden, Misdirected, ValidationError

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
REQUEST_HEADER = "holdfast-request"
"""A header that only scripts of an allowed origin can send."""
CORS_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
CORS_HEADERS = "Authorization, Content-Type, Holdfast-Actor, Holdfast-Incarnation, Idempotency-Key, If-Match, If-None-Match"
CORS_EXPOSED = "ETag, Holdfast-Now, Holdfast-Version, Idempotency-Key, Idempotent-Replayed, Location, Retry-After, X-Request-Id"
CORS_SECONDS = "600"


class Headers(Protocol):
    """The headers of a request, by name in lower case. A dict is one."""

    def get(self, name: str, /) -> str | None: ...


class SiteOrigins(NamedTuple):
    """The names of the server itself, and the pages of other origins that may call it."""

    hosts: AllowedHosts
    scheme: str
    """http or https, as browsers see it."""
    public: str | None = None
    """The origin of the public URL, such as https://jobs.example.org."""
    allowed: frozenset[str] = frozenset()
    """Other origins whose pages may call with a token."""

    def check_host(self, headers: Headers) -> None:
        """Raise Misdirected if a request uses another name than the server's: a page may have changed its own DNS entry."""
        if not self.hosts.allows(headers.get("host") or ""):
            raise Misdirected("the header Host names another server")

    def is_own(self, origin: str, headers: Headers) -> bool:
        """Return whether an origin is the server's own, as this request names it. The host must have been checked."""
        given = origin.lower()
        return given == self.public or given == f"{self.scheme}://{headers.get('host')}".lower()

    def check_origin(self, headers: Headers) -> None:
        """Raise Forbidden if a page of another origin sends a request, unless its origin is allowed."""
        origin = headers.get("origin")
        if origin is not None and origin not in self.allowed and not self.is_own(origin, headers):
            raise Forbidden("pages of this origin may not call the server", action="See --allow-origin.")

    def check_forgery(self, method: str, headers: Headers) -> None:
        """Raise Forbidden unless a request that a browser sent with its cookie comes from a page of the server itself.

        Use it for requests with the cookie. GET and HEAD change nothing, and pass.
        """
        if method in _SAFE_METHODS:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_own = site == "same-origin" if site is not None else origin is not None and self.is_own(origin, headers)
        if not is_own or (origin is not None and not self.is_own(origin, headers)):
            raise Forbidden("this request does not come from a page of the server itself", action="Use a token.")
        if headers.get(REQUEST_HEADER) != "1":
            raise Forbidden("a request with a cookie needs the header Holdfast-Request: 1", action="Use a token, or add it.")
        if _has_body(headers) and not is_json(headers):
            raise Forbidden("a request with a cookie has to be application/json", action="Send JSON.")

    def cors_headers(self, method: str, headers: Headers) -> dict[str, str]:
        """Return the headers that let a page of an allowed origin read the answer. Never with cookies."""
        origin = headers.get("origin")
        if not self.allowed:
            return {}
        if origin is None or origin not in self.allowed:
            return {"Vary": "Origin"}
        if is_preflight(method, headers):
            return {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": CORS_METHODS,
                "Access-Control-Allow-Headers": CORS_HEADERS,
                "Access-Control-Max-Age": CORS_SECONDS,
                "Vary": "Origin",
            }
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": CORS_EXPOSED, "Vary": "Origin"}


def is_preflight(method: str, headers: Headers) -> bool:
    """Return whether a browser asks if a page may send a request."""
    return method == "OPTIONS" and None not in (headers.get("origin"), headers.get("access-control-request-method"))


def is_json(headers: Headers) -> bool:
    """Return whether the body is JSON in UTF-8, by its type."""
    kind, _, parameters = (headers.get("content-type") or "").lower().partition(";")
    charset = parameters.strip()
    return kind.strip() == "application/json" and charset in ("", "charset=utf-8", 'charset="utf-8"')


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length") not in (None, "0") or headers.get("transfer-encoding") is not None


def check_origins(given: Sequence[str]) -> frozenset[str]:
    """Return origins, each https://HOST[:PORT] or http://HOST[:PORT] in lower case, as browsers send them."""
    for origin in given:
        scheme, separator, host = origin.partition("://")
        if scheme not in ("http", "https") or not separator or parse_host_and_port(host) is None or origin != origin.lower():
            raise ValidationError(f"{origin!r:.80} is not an origin like https://jobs.example.org", field="allow_origin")
    return frozenset(given)
