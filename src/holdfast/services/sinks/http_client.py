"""One HTTP POST to a checked address, bounded in time and in bytes read."""

import contextlib
import http.client
import ipaddress
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ValidationError
from holdfast.remote.sockets import DeadlineSocket, RequestDeadline
from holdfast.services.sinks.base import DeliveryFailed

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
"""Returns all addresses of a host as strings."""

_REFUSED_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by carriers; the metadata service of some clouds
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata service, at an address that looks public
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation, as are the two below
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",  # documentation, as is 3fff::/20
        "2002::/16",  # 6to4: contains an IPv4 address
        "3fff::/20",
    )
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_32_BITS = 0xFFFF_FFFF


def is_public(address: Address) -> bool:
    """Return whether this is an address on the public internet. A mapped IPv4 address is checked as IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    if address in _MAPPED or address in _NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & _LOW_32_BITS))
    return address.scope_id is None and address in _GLOBAL_V6 and not any(address in network for network in _REFUSED_V6)


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver. It also accepts decimal, octal, hexadecimal and short forms of addresses."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in entries]


def checked_addresses(resolver: Resolver, host: str, port: int, *, allow_private: bool, seconds: float) -> list[Address]:
    """Return all addresses of a host. Raise DeliveryFailed if one is not allowed: in DNS rebinding, others are public."""
    try:
        addresses = [ipaddress.ip_address(text) for text in dict.fromkeys(_resolve_within(seconds, resolver, host, port))]
    except (OSError, ValueError):
        raise DeliveryFailed(f"{host} cannot be resolved") from None
    if not addresses:
        raise DeliveryFailed(f"{host} has no address")
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise DeliveryFailed(f"{host} is at {address}, which is not a public address: set allow_private to call it")
    return addresses


def _resolve_within(seconds: float, resolver: Resolver, host: str, port: int) -> Sequence[str]:
    """Resolve a host in a thread, because the system's resolver has no timeout. After `seconds` the thread is left running."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(resolver(host, port))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            answers.put(error)

    threading.Thread(target=resolve, name="holdfast-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise DeliveryFailed(f"{host} was not resolved in time") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


RESPONSE_BYTES_MAX = 65_536
"""The most bytes of a response that are read, including its headers."""
URL_BYTES_MAX = 2_000
_PORTS = {"http": 80, "https": 443}


class RequestTarget(msgspec.Struct, frozen=True):
    """The parts of a url. Only the host is ever shown, because paths and queries of webhooks often are secrets."""

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


def parse_target(url: Any) -> RequestTarget:
    """Return the parts of a url. Raise ValidationError, without quoting the url, if it cannot be called."""
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
        raise ValidationError("url must not contain a user or a password: use headers", field="url")
    if port == 0:
        raise ValidationError("url names port 0", field="url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return RequestTarget(parts.scheme, parts.hostname.rstrip("."), port or _PORTS[parts.scheme], path)


def connect(addresses: list[Address], to: RequestTarget, tls: ssl.SSLContext | None, deadline: RequestDeadline) -> socket.socket:
    """Connect to the first of these addresses that answers. The host name is used for TLS only and is not resolved again.

    Each address gets an equal share of the time that is left, so that an address that does not answer leaves time for the next.
    """
    last: OSError | None = None
    for number, address in enumerate(addresses):
        share = deadline.left() / (len(addresses) - number)
        sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)  # noqa: PLR2004
        try:
            sock.settimeout(share)
            sock.connect((str(address), to.port))
            if tls is None:
                return sock
            sock.settimeout(share)
            return tls.wrap_socket(sock, server_hostname=to.host)
        except ssl.SSLError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            last = error
    raise last or OSError


def post(sock: socket.socket, to: RequestTarget, headers: Mapping[str, str], body: bytes, deadline: RequestDeadline) -> int:
    """Send the request and return the status of the response. Redirects are not followed."""
    connection = http.client.HTTPConnection(to.host, to.port)
    connection.auto_open = 0
    connection.sock = DeadlineSocket(sock, deadline, RESPONSE_BYTES_MAX)
    connection.putrequest("POST", to.path, skip_host=True, skip_accept_encoding=True)
    for name, value in {**headers, "Host": to.authority, "Content-Length": str(len(body)), "Connection": "close"}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    # Let the receiver finish its response, which is ignored. The read has a limit, because Python allocates the size that is
    # requested, and the receiver's content length could be huge.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        response.read(RESPONSE_BYTES_MAX)
    return response.status
