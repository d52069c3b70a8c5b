"""Duties of one process, for relays that are to share sinks within a test."""

import threading
from datetime import datetime, timedelta

from holdfast.testing import ManualClock


class LocalDuties:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self.held: dict[str, tuple[str, datetime]] = {}
        self.asked = 0

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        with self._mutex:
            self.asked += 1
            now = self._clock.now()
            owner, until = self.held.get(name, (holder, now))
            if owner != holder and until > now:
                return False
            self.held[name] = (holder, now + timedelta(seconds=ttl))
            return True

    def drop_duty(self, name: str, holder: str) -> None:
        with self._mutex:
            if name in self.held and self.held[name][0] == holder:
                del self.held[name]
