"""The access log: one JSON line for each request. It never has query values, bodies, tokens or fences.

Requests that idle workers and probes repeat, and that found nothing, have the level DEBUG: they would be most of the log.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

REPEATED_ROUTES = frozenset({
    ("GET", "/v1/wake"),
    ("GET", "/v1/until-ready"),
    ("PUT", "/v1/workers/{name}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
})  # fmt: skip
"""What idle workers, load balancers and monitoring ask again and again."""
REFUSED = 400
"""Statuses from here on are refusals and errors. They are logged in every case."""


class AccessEntry:
    """What is known of one request."""

    __slots__ = (
        "code", "found_nothing", "key", "method", "peer", "principal", "request_id", "role", "route", "size", "status",
        "token_id",
    )  # fmt: skip

    def __init__(self, method: str, client: Any) -> None:
        self.method = method
        self.peer = client[0] if client else None
        self.request_id = ""
        self.key: str | None = None
        """The idempotency key: given, or drawn for a request that changes something."""
        self.route: str | None = None
        """The pattern of the route, not the path that was asked for."""
        self.principal: str | None = None
        self.role: str | None = None
        self.token_id: str | None = None
        self.status = 0
        self.code: str | None = None
        self.size = 0
        self.found_nothing = False
        """A claim without a job. Idle workers repeat it."""

    @property
    def level(self) -> int:
        is_repeated = self.found_nothing or (self.method, self.route) in REPEATED_ROUTES
        return logging.DEBUG if is_repeated and self.status < REFUSED else logging.INFO

    def write(self, log: logging.Logger, seconds: float) -> None:
        level = self.level
        if not log.isEnabledFor(level):
            return
        fields = {
            "request_id": self.request_id,
            "principal": self.principal,
            "role": self.role,
            "token": self.token_id,
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "code": self.code,
            "ms": round(seconds * 1_000, 3),
            "bytes": self.size,
            "peer": self.peer,
        }
        log.handle(AccessRecord(log.name, level, f"{self.method} {self.route or '-'} {self.status}", fields))


class AccessRecord(logging.LogRecord):
    """A line of the access log. It is made without a search for the line of the program that logs, which takes long."""

    def __init__(self, name: str, level: int, message: str, fields: Mapping[str, Any]) -> None:
        now = time.time()
        self.__dict__ = {**_PLAIN[level], "name": name, "msg": message, "created": now, "msecs": now % 1 * 1_000, **fields}


_PLAIN = {level: vars(logging.LogRecord("", level, __file__, 0, "", (), None)) for level in (logging.DEBUG, logging.INFO)}
