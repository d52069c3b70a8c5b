"""The sweeper as a service: in every worker, one active at a time.

Sweeping twice would do no harm, only work: everything goes through the normal pipeline. So the duty is a short one, held
only while there are jobs to watch. One that dies is replaced when its time is over; an idle ledger is only read. One that could
not sign what is due lets go of it at once: somebody with a server key, who then keeps it, may be waiting for a turn.
"""

from holdfast.core.limits import SWEEP_MAX
from holdfast.ledger import Ledger
from holdfast.ledger.fleet import SWEEP_DUTY
from holdfast.ledger.sweep import UNSIGNED

DUTY_SECONDS = 1.5


class Sweep:
    name = "sweep"
    every_s = 0.75

    def __init__(self, ledger: Ledger, holder: str) -> None:
        self._ledger = ledger
        self._holder = holder

    def tick(self) -> dict[str, int]:
        """What was done; nothing where it is somebody else's turn."""
        if not self._ledger.wants_sweeping(self._holder):
            return {}
        if not self._ledger.take_duty(SWEEP_DUTY, self._holder, ttl=DUTY_SECONDS):
            return {}
        made = self._ledger.sweep(limit=SWEEP_MAX)
        if UNSIGNED in made:
            self.close()
        return made

    def close(self) -> None:
        self._ledger.drop_duty(SWEEP_DUTY, self._holder)
