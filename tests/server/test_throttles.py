"""Limits of callers, with a clock that the tests move."""

import pytest

from holdfast.core import limits
from holdfast.errors import TooManyRequests
from holdfast.server.throttles import RequestRates, RequestSlots, WrongTokens, network_of


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def at() -> Clock:
    return Clock()


def test_a_caller_has_a_limited_number_of_requests_under_way() -> None:
    slots = RequestSlots(2)
    with slots.slot("a"):
        with slots.slot("a"), slots.slot("b"):
            with pytest.raises(TooManyRequests) as refused, slots.slot("a"):
                pass
            assert refused.value.context["retry_after_s"] == 1
        with slots.slot("a"):
            pass
    assert not slots._under_way


def test_a_slot_is_free_again_after_an_error() -> None:
    slots = RequestSlots(1)
    for _ in range(3):
        with pytest.raises(RuntimeError), slots.slot("a"):
            raise RuntimeError


def test_a_bucket_is_filled_by_time(at: Clock) -> None:
    rates = RequestRates(at, rate=10, burst=20)
    for _ in range(20):
        rates.take("a")
    with pytest.raises(TooManyRequests) as refused:
        rates.take("a")
    assert refused.value.context["retry_after_s"] == pytest.approx(0.1)
    rates.take("b")
    at.now += 0.11
    rates.take("a")
    with pytest.raises(TooManyRequests):
        rates.take("a")
    at.now += 1_000
    for _ in range(20):
        rates.take("a")
    with pytest.raises(TooManyRequests):
        rates.take("a")


def test_the_number_of_buckets_is_limited(at: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_PRINCIPALS_MAX", 3)
    rates = RequestRates(at, rate=1, burst=2)
    for key in "abc":
        rates.take(key)
    at.now += 5
    rates.take("c")
    rates.take("d")
    assert rates._buckets.keys() == {"c", "d"}
    for key in "efgh":
        rates.take(key)
    assert len(rates._buckets) <= 3


def test_an_address_with_20_wrong_tokens_waits_for_a_minute(at: Clock) -> None:
    wrong = WrongTokens(at)
    for _ in range(20):
        wrong.check("192.0.2.1")
        wrong.note("192.0.2.1")
    with pytest.raises(TooManyRequests) as refused:
        wrong.check("192.0.2.1")
    assert refused.value.context["retry_after_s"] == 60
    wrong.check("192.0.2.2")
    at.now += 59.5
    with pytest.raises(TooManyRequests):
        wrong.check("192.0.2.1")
    at.now += 0.5
    wrong.check("192.0.2.1")


def test_wrong_tokens_are_forgotten_after_a_minute(at: Clock) -> None:
    wrong = WrongTokens(at, most=3)
    for _ in range(10):
        wrong.note("192.0.2.1")
        at.now += 30
        wrong.check("192.0.2.1")


def test_the_number_of_addresses_is_limited(at: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_PRINCIPALS_MAX", 3)
    wrong = WrongTokens(at)
    for number in range(10):
        wrong.note(f"192.0.2.{number}")
    assert list(wrong._wrong) == ["192.0.2.7", "192.0.2.8", "192.0.2.9"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::/64"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("fe80::7%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_addresses_of_one_network_count_together(address: str, network: str) -> None:
    assert network_of(address) == network
