"""Requests to an OpenID Connect provider: a deadline for all of them together, a limit of size, and no redirects.

The timeout of a socket is for each read alone. A provider that sends a byte now and then would keep a thread for ever, so here
each read gets only the time that is left.
"""

import http.client
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from holdfast.core import limits
from holdfast.errors import Unauthenticated, Unavailable


class ProviderRequests:
    """The requests of one step of a sign-in. They have OIDC_ANSWER_MS_MAX together."""

    def __init__(self, tls: ssl.SSLContext | None, seconds: float = limits.OIDC_ANSWER_MS_MAX / 1_000) -> None:
        self._until = time.monotonic() + seconds
        plain, secure = _PlainHandler(self._until), _SecureHandler(self._until, tls)
        self._opener = urllib.request.build_opener(_NoRedirects(), plain, secure)

    def fetch(self, address: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object of an answer. Raise Unauthenticated if a form is refused, and Unavailable for anything else."""
        request = urllib.request.Request(address, form, dict(headers or {}))  # noqa: S310 - the client has checked its scheme
        try:
            with self._opener.open(request, timeout=_left(self._until)) as answer:
                body = answer.read(limits.OIDC_ANSWER_BYTES_MAX + 1)
            found = json.loads(body) if len(body) <= limits.OIDC_ANSWER_BYTES_MAX else None
        except urllib.error.HTTPError as error:
            error.close()
            if form is not None and HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise Unauthenticated("the provider does not accept the code", action="Sign in again.") from None
            raise Unavailable(f"the provider answered with status {error.code}", outcome="none") from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            raise Unavailable("the provider cannot be reached, or its answer cannot be read", outcome="none") from None
        if not isinstance(found, dict):
            raise Unavailable("the provider's answer is not a JSON object, or too large", outcome="none")
        return found


def _left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the provider takes too long")
    return seconds


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _PlainHandler(urllib.request.HTTPHandler):
    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_timed(http.client.HTTPConnection, self._until), req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def __init__(self, until: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._until = until
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_timed(http.client.HTTPSConnection, self._until), req, context=self._tls)


def _timed(kind: Any, until: float) -> Any:
    """Return a class of connections that end at this time."""

    def connect(self: Any) -> None:
        kind.connect(self)
        self.sock = _TimedSocket(self.sock, until)

    return type("TimedConnection", (kind,), {"connect": connect})


class _TimedSocket:
    """The part of a socket that http.client uses after the connection is made."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket = connected
        self._until = until

    def sendall(self, data: Any) -> None:
        self._socket.settimeout(_left(self._until))
        self._socket.sendall(data)

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._socket, self._until))

    def close(self) -> None:
        self._socket.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket = connected
        self._until = until
        self._file = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(_left(self._until))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
