"""The access log: one JSON line for each request. It never has query values, bodies, tokens or fences."""

import logging
import time
from collections.abc import Mapping
from typing import Any


class AccessEntry:
    """What is known of one request."""

    __slots__ = ("code", "key", "method", "peer", "principal", "request_id", "role", "route", "size", "status", "token_id")

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

    def write(self, log: logging.Logger, seconds: float) -> None:
        if not log.isEnabledFor(logging.INFO):
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
        log.handle(AccessRecord(log.name, f"{self.method} {self.route or '-'} {self.status}", fields))


class AccessRecord(logging.LogRecord):
    """A line of the access log. It is made without a search for the line of the program that logs, which takes long."""

    def __init__(self, name: str, message: str, fields: Mapping[str, Any]) -> None:
        now = time.time()
        self.__dict__ = {**_PLAIN, "name": name, "msg": message, "created": now, "msecs": now % 1 * 1_000, **fields}


_PLAIN = vars(logging.LogRecord("", logging.INFO, __file__, 0, "", (), None))
