"""Which addresses a webhook may call, in every spelling of them."""

import ipaddress
import threading
from collections.abc import Sequence

import pytest

from holdfast.services.sinks import DeliveryFailed
from holdfast.services.sinks.http_client import checked_addresses, is_public, system_resolver

REFUSED = [
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
    "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "2002:0808:0808::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1", "2606:4700::1%1",
]  # fmt: skip
ALLOWED = [
    "1.1.1.1", "8.8.8.8", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.0.0.1", "128.0.0.1", "168.63.129.15", "172.15.0.1",
    "172.32.0.1", "192.167.1.1", "192.169.1.1", "223.255.255.255",
    "::ffff:8.8.8.8", "64:ff9b::808:808", "2001:200::1", "2606:4700:4700::1111", "2a00:1450:4001::1",
]  # fmt: skip
SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "0177.1",
    "017700000001", "0x7F.0.0.1", "127.000.000.001", "0", "10.1", "0xa.1", "012.0.0.1", "167772161", "192.168.257",
    "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "::1", "0:0:0:0:0:0:0:1", "::ffff:7f00:1",
    "::ffff:127.0.0.1", "0000:0000:0000:0000:0000:ffff:a9fe:a9fe", "64:ff9b::10.0.0.1", "localhost",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_addresses_outside_the_public_internet_are_refused(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ALLOWED)
def test_public_addresses_are_accepted(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("host", SPELLINGS)
def test_every_spelling_of_a_private_address_is_refused(host: str) -> None:
    """The resolved address is checked, not the text."""
    with pytest.raises(DeliveryFailed, match="not a public address"):
        checked_addresses(system_resolver, host, 80, allow_private=False, seconds=10)


@pytest.mark.parametrize("addresses", [("8.8.8.8", "10.0.0.1"), ("10.0.0.1", "8.8.8.8"), ("2606:4700::1", "::1")])
def test_one_private_address_refuses_the_host(addresses: Sequence[str]) -> None:
    with pytest.raises(DeliveryFailed, match="not a public address"):
        checked_addresses(lambda host, port: addresses, "example.org", 80, allow_private=False, seconds=10)


def test_private_addresses_are_accepted_if_allowed() -> None:
    found = checked_addresses(lambda host, port: ["10.0.0.1", "::1"], "inside", 80, allow_private=True, seconds=10)
    assert [str(address) for address in found] == ["10.0.0.1", "::1"]


@pytest.mark.parametrize("answer", [[], ["127.1"], ["example.org"], ["0x7f.1"], [""]])
def test_a_resolver_that_answers_no_address_is_refused(answer: list[str]) -> None:
    with pytest.raises(DeliveryFailed):
        checked_addresses(lambda host, port: answer, "example.org", 80, allow_private=True, seconds=10)


def test_a_resolver_that_hangs_is_abandoned() -> None:
    released = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        released.wait(60)
        return []

    with pytest.raises(DeliveryFailed, match="in time"):
        checked_addresses(hang, "example.org", 80, allow_private=False, seconds=0.01)
    released.set()
