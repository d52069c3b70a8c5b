"""The sweeper as a service. Every worker has one, and one is active at a time.

Two sweepers at once do no harm, only more work, because every change goes through the normal pipeline. So the duty is short and
is held only while there are jobs to watch. If its holder dies, another worker takes it when its ttl is over. An idle ledger is
only read. A sweeper that cannot sign the events that are due drops the duty at once, for a worker with a server key to take.
"""

from holdfast.core.limits import SWEEP_MAX
from holdfast.errors import Unavailable
from holdfast.keeping.duty import Duty
from holdfast.keeping.service import Service
from holdfast.ledger import Ledger
from holdfast.ledger.sweep import SWEEP_DUTY, UNSIGNED

DUTY_SECONDS = 1.5
EVERY_SECONDS, SOONEST_SECONDS = 0.75, 0.1
"""The interval between ticks, and the shortest one if a schedule is due before."""
REFUSALS_MAX = 3
"""After more ticks than this at which a free duty could not be taken, its row is locked: sweep without the duty."""


class SweepService(Service):
    """Sweep the ledger while this worker has the duty."""

    name = "sweep"
    duty: Duty

    def __init__(self, ledger: Ledger, holder: str) -> None:
        self.every_s = EVERY_SECONDS
        self._ledger = ledger
        self._holder = holder
        self.duty = Duty(ledger, SWEEP_DUTY, holder, DUTY_SECONDS)
        self._waits_one_tick = True
        """The duty was not held at the last tick. The first tick with it does not sweep."""
        self._refusals = 0
        """At how many ticks in a row the duty could not be taken."""

    def tick(self) -> dict[str, int]:
        """Sweep and return how many jobs were changed in which way. Do nothing while another worker has the duty.

        A worker that has just taken the duty waits for one tick. If the clock has stepped or the store was out of reach, the
        workers that noticed it record that in the ledger meanwhile.
        """
        wanted = self._ledger.wants_sweeping(self._holder)
        self.every_s = self._pause()
        if not wanted:
            self._waits_one_tick, self._refusals = True, 0
            return {}
        if not self._take_duty():
            return {}
        if self._waits_one_tick:
            self._waits_one_tick = False
            return {}
        changes = self._ledger.sweep(limit=SWEEP_MAX)
        if UNSIGNED in changes:
            self.close()
        return changes

    def _pause(self) -> float:
        """Return how long to wait for the next tick: a schedule is due at its time, not at the next interval."""
        left = self._ledger.seconds_to_firing
        return EVERY_SECONDS if left is None else min(EVERY_SECONDS, max(SOONEST_SECONDS, left))

    @property
    def is_active(self) -> bool:
        """Whether this process had the duty at its last tick. While there are no jobs to watch, no process has it."""
        return not self._waits_one_tick

    def _take_duty(self) -> bool:
        try:
            taken = self.duty.take()
        except Unavailable as error:
            if not error.locked:
                raise
            taken = False
        self._refusals = 0 if taken else self._refusals + 1
        return taken or self._refusals > REFUSALS_MAX

    def close(self) -> None:
        self._waits_one_tick = True
        super().close()
