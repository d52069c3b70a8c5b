"""Host names of a server: which a request may use, and which are loopback addresses."""

import ipaddress
import re
from collections.abc import Sequence

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PORT_MAX = 65_535
_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_host_and_port(text: str) -> tuple[str, int | None] | None:
    """Return the normalised host and the port of HOST or HOST:PORT. Return None if the text is neither."""
    match = _HOST_AND_PORT.fullmatch(text.lower())
    if match is None or int(match[2] or 0) > PORT_MAX:
        return None
    host = match[1]
    if host.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
        except ValueError:
            return None
    return host, None if match[2] is None else int(match[2])


class AllowedHosts:
    """The host names that requests may use for the server. A name with a port allows only that port, other names every port."""

    def __init__(self, host: str, others: Sequence[str]) -> None:
        given = [*LOOPBACK, f"[{host}]" if ":" in host else host, *others]
        self._allowed = {parsed for parsed in map(parse_host_and_port, given) if parsed is not None}

    def allows(self, text: str) -> bool:
        """Return whether HOST or HOST:PORT is allowed. The whole text is compared."""
        parsed = parse_host_and_port(text)
        return parsed is not None and (parsed in self._allowed or (parsed[0], None) in self._allowed)
