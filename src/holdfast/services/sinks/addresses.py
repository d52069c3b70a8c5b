"""Which addresses a webhook may call. Names resolve to whatever their owner likes: the addresses decide, not the name."""

import ipaddress
import queue
import socket
import threading
from collections.abc import Callable, Sequence

from holdfast.services.sinks.base import DeliveryFailed

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
"""All addresses of a host, as texts."""

_REFUSED_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata here
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata, at an address that looks public
        "169.254.0.0/16",  # link-local, and most clouds' metadata
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
        "2001::/23",  # Teredo and other protocols' own
        "2001:db8::/32",  # documentation, as is 3fff::/20
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",
    )
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_32_BITS = 0xFFFF_FFFF


def is_public(address: Address) -> bool:
    """Whether this is an address on the open internet. One that stands for an IPv4 address is judged by that one."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    if address in _MAPPED or address in _NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & _LOW_32_BITS))
    return address.scope_id is None and address in _GLOBAL_V6 and not any(address in network for network in _REFUSED_V6)


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Also reads every spelling of a number that the system's own functions read: decimal, octal, hexadecimal, short."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in found]


def checked_addresses(resolver: Resolver, host: str, port: int, *, allow_private: bool, seconds: float) -> list[Address]:
    """Every address of a host. One that may not be called spoils them all: a rebinding name has good ones too."""
    try:
        found = [ipaddress.ip_address(text) for text in dict.fromkeys(_within(seconds, resolver, host, port))]
    except (OSError, ValueError):
        raise DeliveryFailed(f"{host} cannot be resolved") from None
    if not found:
        raise DeliveryFailed(f"{host} has no address")
    if not allow_private:
        for address in found:
            if not is_public(address):
                raise DeliveryFailed(f"{host} is at {address}, which is not a public address: allow_private lets it be called")
    return found


def _within(seconds: float, resolver: Resolver, host: str, port: int) -> Sequence[str]:
    """The system's resolver knows no timeout of ours, so it is waited for and, if need be, left behind."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolver(host, port))
        except Exception as error:  # noqa: BLE001 - the asker gets it
            answers.put(error)

    threading.Thread(target=ask, name="holdfast-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise DeliveryFailed(f"{host} was not resolved in time") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
