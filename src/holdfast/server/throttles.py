"""Limits of callers: requests under way, requests a second, streams, and wrong tokens from one address.

Each class has a clock as an argument and keeps a bounded number of callers. Slots and rates are used on the event loop only, so
they need no locks.
"""

import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.core import limits
from holdfast.errors import TooManyRequests, Unavailable

Monotonic = Callable[[], float]


class RequestSlots:
    """Counts the requests of each caller that are under way."""

    def __init__(self, most: int = limits.HTTP_PRINCIPAL_REQUESTS_MAX) -> None:
        self._most = most
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def slot(self, key: str) -> Iterator[None]:
        """Count a request until the block ends. Raise TooManyRequests if the caller has too many under way."""
        if self._under_way[key] >= self._most:
            raise TooManyRequests(
                f"{self._most} requests of this caller are under way, which is the limit", limit=self._most, retry_after_s=1
            )
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]


class RequestRates:
    """A token bucket for each caller: `burst` requests at once, filled by `rate` a second."""

    def __init__(
        self, monotonic: Monotonic, rate: float = limits.HTTP_PRINCIPAL_RATE, burst: int = limits.HTTP_PRINCIPAL_BURST
    ) -> None:
        self._monotonic, self._rate, self._burst = monotonic, rate, burst
        self._buckets: dict[str, tuple[float, float]] = {}
        """The requests that each caller may send, and the time at which it was computed."""

    def take(self, key: str) -> None:
        """Count a request. Raise TooManyRequests if the bucket of the caller is empty."""
        now = self._monotonic()
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        if left < 1:
            self._buckets[key] = (left, now)
            raise TooManyRequests(
                f"this caller sends more than {self._rate:g} requests a second",
                limit=self._rate,
                retry_after_s=(1 - left) / self._rate,
            )
        if key not in self._buckets and len(self._buckets) >= limits.HTTP_PRINCIPALS_MAX:
            self._forget_full(now)
        self._buckets[key] = (left - 1, now)

    def _forget_full(self, now: float) -> None:
        """Forget callers whose bucket is full again: they need no entry. If all are busy, forget all."""
        busy = {key: (left, at) for key, (left, at) in self._buckets.items() if left + (now - at) * self._rate < self._burst}
        self._buckets = busy if len(busy) < limits.HTTP_PRINCIPALS_MAX else {}


class StreamSlots:
    """Counts open streams, of each caller and in all."""

    def __init__(self, of_one: int = limits.HTTP_STREAMS_OF_ONE_MAX, most: int = limits.HTTP_STREAMS_MAX) -> None:
        self._of_one, self._most = of_one, most
        self._open: Counter[str] = Counter()
        self.total = 0

    def check(self, key: str) -> None:
        """Raise TooManyRequests if the caller has too many streams, and Unavailable if the server has."""
        if self._open[key] >= self._of_one:
            raise TooManyRequests(f"this caller has {self._open[key]} streams already", limit=self._of_one, retry_after_s=5)
        if self.total >= self._most:
            raise Unavailable("the server has too many streams", outcome="none")

    @contextmanager
    def slot(self, key: str) -> Iterator[None]:
        """Count a stream until the block ends."""
        self._open[key] += 1
        self.total += 1
        try:
            yield
        finally:
            self.total -= 1
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


class WrongTokens:
    """Counts wrong tokens by address. An address with too many is not answered for a time.

    An address of IPv6 counts with its /64 network, since one customer usually has all of it. Safe to use from many threads.
    """

    def __init__(
        self,
        monotonic: Monotonic,
        most: int = limits.HTTP_WRONG_TOKENS_MAX,
        per_s: float = limits.HTTP_WRONG_TOKENS_MS / 1_000,
    ) -> None:
        self._monotonic, self._most, self._per_s = monotonic, most, per_s
        self._wrong: dict[str, tuple[int, float]] = {}
        """The number of wrong tokens of each address, and when the period began."""
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Raise TooManyRequests if too many wrong tokens came from this address."""
        count, since = self._wrong.get(network_of(address), (0, 0.0))
        left_s = since + self._per_s - self._monotonic()
        if count >= self._most and left_s > 0:
            raise TooManyRequests("too many wrong tokens came from this address", limit=self._most, retry_after_s=left_s)

    def note(self, address: str) -> None:
        """Count a wrong token. The period of an address that reaches the limit begins anew."""
        network, now = network_of(address), self._monotonic()
        with self._lock:
            count, since = self._wrong.pop(network, (0, now))
            if now - since >= self._per_s:
                count, since = 0, now
            if count + 1 >= self._most:
                since = now
            if len(self._wrong) >= limits.HTTP_PRINCIPALS_MAX:
                del self._wrong[next(iter(self._wrong))]
            self._wrong[network] = (count + 1, since)


def network_of(address: str) -> str:
    """Return an IPv4 address as it is, and the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
