"""The sweeper as a service: in every worker, one active at a time.

Sweeping twice does no harm, only work: everything goes through the normal pipeline. So the duty is a short one, held only
while there are jobs to watch. If its holder dies, another worker takes it when its time is over. An idle ledger is only read. A
sweeper that could not sign what is due drops the duty at once, for a worker with a server key to take.
"""

from holdfast.core.limits import SWEEP_MAX
from holdfast.errors import Unavailable
from holdfast.ledger import Ledger
from holdfast.ledger.sweep import SWEEP_DUTY, UNSIGNED

DUTY_SECONDS = 1.5
REFUSALS_MAX = 3
"""After so many ticks at which the duty was free and could not be taken, its row is locked: sweep without it."""


class SweepService:
    name = "sweep"
    every_s = 0.75

    def __init__(self, ledger: Ledger, holder: str) -> None:
        self._ledger = ledger
        self._holder = holder
        self._is_new = True
        self._refusals = 0

    def tick(self) -> dict[str, int]:
        """What was done; nothing while another worker has the duty.

        A worker that has just taken the duty waits for one tick. If the clock has stepped or the store was away, the workers
        that have noticed it say so in the ledger meanwhile.
        """
        if not self._ledger.wants_sweeping(self._holder):
            self._is_new, self._refusals = True, 0
            return {}
        if not self._take_duty():
            return {}
        if self._is_new:
            self._is_new = False
            return {}
        made = self._ledger.sweep(limit=SWEEP_MAX)
        if UNSIGNED in made:
            self.close()
        return made

    def _take_duty(self) -> bool:
        try:
            taken = self._ledger.take_duty(SWEEP_DUTY, self._holder, ttl=DUTY_SECONDS)
        except Unavailable as error:
            if not error.locked:
                raise
            taken = False
        self._refusals = 0 if taken else self._refusals + 1
        return taken or self._refusals > REFUSALS_MAX

    def close(self) -> None:
        self._is_new = True
        self._ledger.drop_duty(SWEEP_DUTY, self._holder)
