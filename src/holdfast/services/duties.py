"""Who of many processes does a thing: one at a time, for as long as it keeps saying so."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import HoldfastError, Unavailable

TTL_SECONDS = 30.0


class Duties(Protocol):
    """Duties that are taken for a while, in ledger time."""

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        """Take it, or keep it; False while somebody else has it."""

    def drop_duty(self, name: str, holder: str) -> object:
        """Let go of it, if it is the holder's."""


class DutyLeases:
    """One process's share of some duties. All are asked for together, whenever a third of the time they last is over."""

    def __init__(self, duties: Duties, names: Mapping[str, str], holder: str, ttl: Any, monotonic: Callable[[], float]) -> None:
        """`names` are those of the duties, by what they are for."""
        self._ttl_seconds = policies.duration_ms("duty_ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) / 1_000
        self.renew_seconds = self._ttl_seconds / 3
        self._duties = duties
        self._names = dict(names)
        self._holder = holder
        self._monotonic = monotonic
        self._renewed_at = float("-inf")
        self._held: frozenset[str] = frozenset()

    def holds(self, what: str) -> bool:
        """Whether this is ours to do. Asked again and again, that keeps the other duties too."""
        self.renew()
        return what in self._held

    def renew(self) -> bool:
        """Renew what is held and try for the rest, if it is time to. True where one has come to be ours."""
        now = self._monotonic()
        if now - self._renewed_at < self.renew_seconds:
            return False
        before, self._held = self._held, frozenset(what for what, name in self._names.items() if self._take(name))
        # Only now: where the store could not be reached, the next one asks again.
        self._renewed_at = now
        return not self._held <= before

    def _take(self, name: str) -> bool:
        """False too where another transaction has locked this duty: the others do not wait for it."""
        try:
            return self._duties.take_duty(name, self._holder, ttl=self._ttl_seconds)
        except Unavailable as error:
            if not error.locked:
                raise
            return False

    def release(self) -> None:
        """Let others take over at once. Where that cannot be said, they do when the time is over."""
        self._renewed_at, self._held = float("-inf"), frozenset()
        with contextlib.suppress(HoldfastError):
            for name in self._names.values():
                self._duties.drop_duty(name, self._holder)
