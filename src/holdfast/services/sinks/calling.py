"""One HTTP request to an address that is given: bounded in time and in what is read, and never led elsewhere."""

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ValidationError
from holdfast.services.sinks.addresses import Address

RESPONSE_BYTES_MAX = 65_536
"""Read of a response, its headers included; the rest is left where it is."""
URL_BYTES_MAX = 2_000
_PORTS = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """A url in its parts. Paths and queries of webhooks often are secrets: only the host is ever shown."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __repr__(self) -> str:
        return f"{self.scheme}://{self.authority}/…"


def target(url: Any) -> Target:
    """The parts of a url that can be called. What is wrong with another is said without repeating it."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or len(url) > URL_BYTES_MAX:
        raise ValidationError(f"url must be an ASCII text of at most {URL_BYTES_MAX} characters, without blanks", field="url")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValidationError("url cannot be read", field="url") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValidationError("url must start with https:// or http:// and name a host", field="url")
    if "@" in parts.netloc:
        raise ValidationError("url must not hold a user or a password: use headers", field="url")
    if port == 0:
        raise ValidationError("url names port 0", field="url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname.rstrip("."), port or _PORTS[parts.scheme], path)


class Deadline:
    """The end of one delivery, whatever it waits for."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def connect(addresses: list[Address], to: Target, tls: ssl.SSLContext | None, deadline: Deadline) -> socket.socket:
    """A connection to the first of these addresses that answers. The name is for TLS alone: it is not resolved again.

    Each address gets an equal share of the time that is left, so that one that does not answer leaves time for the next.
    """
    last: OSError | None = None
    for number, address in enumerate(addresses):
        share = deadline.left() / (len(addresses) - number)
        line = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)  # noqa: PLR2004
        try:
            line.settimeout(share)
            line.connect((str(address), to.port))
            if tls is None:
                return line
            line.settimeout(share)
            return tls.wrap_socket(line, server_hostname=to.host)
        except ssl.SSLError:
            line.close()
            raise
        except OSError as error:
            line.close()
            last = error
    raise last or OSError


def post(line: socket.socket, to: Target, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> int:
    """Send, and answer the status. A redirect is a status like any other."""
    connection = http.client.HTTPConnection(to.host, to.port)
    connection.auto_open = 0
    connection.sock = _Line(line, deadline)
    connection.putrequest("POST", to.path, skip_host=True, skip_accept_encoding=True)
    for name, value in {**headers, "Host": to.authority, "Content-Length": str(len(body)), "Connection": "close"}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    # Let the receiver finish speaking; what it says does not matter any more. Python sets aside as much memory as is asked for:
    # never as much as the receiver says that it will send.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        response.read(RESPONSE_BYTES_MAX)
    return response.status


class _Line:
    """What http.client needs of a socket, under one deadline."""

    def __init__(self, line: socket.socket, deadline: Deadline) -> None:
        self._line = line
        self._deadline = deadline

    def sendall(self, content: Any) -> None:
        rest = memoryview(content)
        while rest:
            self._line.settimeout(self._deadline.left())
            rest = rest[self._line.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._line, self._deadline))

    def close(self) -> None:
        """The socket is closed by whoever opened it."""


class _Incoming(io.RawIOBase):
    def __init__(self, line: socket.socket, deadline: Deadline) -> None:
        self._line = line
        self._deadline = deadline
        self._left = RESPONSE_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)[: self._left]
        if not room:
            return 0
        self._line.settimeout(self._deadline.left())
        count = self._line.recv_into(room)
        self._left -= count
        return count
