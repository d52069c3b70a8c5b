"""Duties: leases that let one of many processes do a task as long as it renews them."""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import HoldfastError, Unavailable

TTL_SECONDS = 30.0


class Duties(Protocol):
    """Duties that are held for a limited time, in ledger time."""

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        """Take or renew the duty. Return False while another holder has it."""

    def drop_duty(self, name: str, holder: str) -> object:
        """Release the duty if `holder` has it."""


class Duty:
    """A duty that one process holds or waits for, or several that it takes, renews and drops together."""

    def __init__(
        self,
        duties: Duties,
        names: str | Iterable[str],
        holder: str,
        ttl: Any = TTL_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_seconds = policies.duration_ms("duty_ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) / 1_000
        self.renew_seconds = self._ttl_seconds / 3
        self.names = (names,) if isinstance(names, str) else tuple(names)
        self._duties = duties
        self._holder = holder
        self.monotonic = monotonic
        self._renewed_at = float("-inf")
        self._held: frozenset[str] = frozenset()

    @property
    def is_held(self) -> bool:
        """Whether this process had one of the duties when they were last renewed."""
        return bool(self._held)

    def holds(self, name: str) -> bool:
        """Return whether this process holds the duty. The call renews all of them when a third of their ttl is over."""
        self.renew()
        return name in self._held

    def keep(self) -> bool:
        """Return whether this process holds the duty: renew it when it is time, and try to take it if it is not held."""
        if not self._held or self._is_due():
            self.take()
        return self.is_held

    def renew(self) -> bool:
        """Renew the held duties and try to take the others, if it is time. Return whether a duty was gained.

        One that another transaction has locked counts as not held: the others do not wait for it.
        """
        if not self._is_due():
            return False
        before = self._held
        self._take_all(self._take_unlocked)
        return not self._held <= before

    def take(self) -> bool:
        """Take or renew the duty now. Return False while another process has it. Raise Unavailable if it is locked."""
        self._take_all(self._take)
        return self.is_held

    def _is_due(self) -> bool:
        return self.monotonic() - self._renewed_at >= self.renew_seconds

    def _take_all(self, take: Callable[[str], bool]) -> None:
        now = self.monotonic()
        self._held = frozenset(name for name in self.names if take(name))
        # Set last: if the store was out of reach, the next call tries again.
        self._renewed_at = now

    def _take(self, name: str) -> bool:
        return self._duties.take_duty(name, self._holder, ttl=self._ttl_seconds)

    def _take_unlocked(self, name: str) -> bool:
        try:
            return self._take(name)
        except Unavailable as error:
            if not error.locked:
                raise
            return False

    def drop(self) -> None:
        """Drop all duties so that other processes can take them at once. If that fails, they can when the ttl is over."""
        self._renewed_at, self._held = float("-inf"), frozenset()
        with contextlib.suppress(HoldfastError):
            for name in self.names:
                self._duties.drop_duty(name, self._holder)
