"""Who of many processes serves a sink: one at a time, for as long as it keeps saying so."""

import contextlib
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast.errors import HoldfastError

TTL_SECONDS = 60.0
RENEW_SECONDS = TTL_SECONDS / 3


@runtime_checkable
class Duties(Protocol):
    """Duties that are taken for a while, in ledger time."""

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        """Take it, or keep it; False while somebody else has it."""

    def drop_duty(self, name: str, holder: str) -> object:
        """Let go of it, if it is the holder's."""


class Watch:
    """One relay's share of the duties. Without any `Duties` it takes itself to be the only relay there is."""

    def __init__(self, duties: Duties | None, holder: str, monotonic: Callable[[], float]) -> None:
        self._duties = duties
        self._holder = holder
        self._monotonic = monotonic
        self._asked: dict[str, tuple[float, bool]] = {}

    def holds(self, sink: str) -> bool:
        """Whether the sink is this relay's to serve. Asks at most once in a third of the time a duty lasts."""
        if self._duties is None:
            return True
        now = self._monotonic()
        asked_at, held = self._asked.get(sink, (float("-inf"), False))
        if now - asked_at >= RENEW_SECONDS:
            held = self._duties.take_duty(_duty(sink), self._holder, ttl=TTL_SECONDS)
            self._asked[sink] = (now, held)
        return held

    def drop(self) -> None:
        """Let others take over at once. Where that cannot be said, they do when the time is over."""
        for sink, (_, held) in self._asked.items():
            if held and self._duties is not None:
                with contextlib.suppress(HoldfastError):
                    self._duties.drop_duty(_duty(sink), self._holder)
        self._asked.clear()


def _duty(sink: str) -> str:
    return f"relay:{sink}"
