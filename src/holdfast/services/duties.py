"""Duties: leases that let one of many processes do a task as long as it renews them."""

import contextlib
from collections.abc import Callable, Mapping
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


class DutyLeases:
    """The duties that one process holds or waits for. All are renewed together, each time a third of their ttl is over."""

    def __init__(self, duties: Duties, names: Mapping[str, str], holder: str, ttl: Any, monotonic: Callable[[], float]) -> None:
        """`names` maps each purpose to the name of its duty."""
        self._ttl_seconds = policies.duration_ms("duty_ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) / 1_000
        self.renew_seconds = self._ttl_seconds / 3
        self._duties = duties
        self._names = dict(names)
        self._holder = holder
        self._monotonic = monotonic
        self._renewed_at = float("-inf")
        self._held: frozenset[str] = frozenset()

    def holds(self, what: str) -> bool:
        """Return whether this process holds the duty for `what`. The call also renews the other duties when it is time."""
        self.renew()
        return what in self._held

    @property
    def holds_any(self) -> bool:
        """Whether this process had one of the duties when they were last renewed."""
        return bool(self._held)

    def renew(self) -> bool:
        """Renew the held duties and try to take the others, if it is time. Return whether a duty was gained."""
        now = self._monotonic()
        if now - self._renewed_at < self.renew_seconds:
            return False
        before, self._held = self._held, frozenset(what for what, name in self._names.items() if self._take(name))
        # Set last: if the store was out of reach, the next call tries again.
        self._renewed_at = now
        return not self._held <= before

    def _take(self, name: str) -> bool:
        """Take one duty. Return False also if another transaction has locked it: the other duties do not wait for it."""
        try:
            return self._duties.take_duty(name, self._holder, ttl=self._ttl_seconds)
        except Unavailable as error:
            if not error.locked:
                raise
            return False

    def release(self) -> None:
        """Drop all duties so that other processes can take them at once. If that fails, they can when the ttl is over."""
        self._renewed_at, self._held = float("-inf"), frozenset()
        with contextlib.suppress(HoldfastError):
            for name in self._names.values():
                self._duties.drop_duty(name, self._holder)
