"""Host names that a request may use for a server."""

import pytest

from holdfast.core.hosts import AllowedHosts, is_loopback

KNOWN = [
    "127.0.0.1", "127.0.0.1:8765", "LocalHost:1", "[::1]", "[::1]:8765", "[0:0:0:0:0:0:0:1]:5", "MCP.example:443", "mcp.example",
    "b.example:8443",
]  # fmt: skip


@pytest.mark.parametrize("host", KNOWN)
def test_every_spelling_of_a_server_name_is_accepted(host: str) -> None:
    assert AllowedHosts("127.0.0.1", ["mcp.example", "b.example:8443"]).allows(host)


TRICKY = [
    "", "evil.example", "localhost.evil.example", "evil-localhost", "evil.localhost", "localhost:evil.example", "localhost:80:80",
    "localhost:", "localhost:99999", "localhost:-1", "localhost:80@evil.example", "localhost@evil.example", "localhost.",
    "127.0.0.1.evil.example", "127.0.0.10", "127.1", "0x7f.0.0.1", "2130706433", "::1", "[::1", "[::1].evil.example", "[::1]evil",
    "[::2]", "[::ffff:127.0.0.1]", "mcp.example.evil.example", "notmcp.example", "mcp.example/", "mcp.example ", " mcp.example",
    "b.example", "b.example:8444", "b.example:84430", "lo\u0441alhost", "*", "null",
]  # fmt: skip


@pytest.mark.parametrize("host", TRICKY)
def test_a_similar_server_name_is_refused(host: str) -> None:
    assert not AllowedHosts("127.0.0.1", ["mcp.example", "b.example:8443"]).allows(host)


def test_an_address_that_is_listened_on_is_allowed() -> None:
    assert AllowedHosts("2001:db8::1", []).allows("[2001:db8:0::1]:8470")
    assert not AllowedHosts("2001:db8::1", ["[nonsense", "a b"]).allows("[2001:db8::2]")
    assert not AllowedHosts("127.0.0.1", []).allows("[1::2::3]")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", "localhost.example.org", ""])  # noqa: S104 - not bound
def test_other_addresses_are_public(host: str) -> None:
    assert not is_loopback(host)
