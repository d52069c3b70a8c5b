"""Retention as a service: delete answers kept for repeated requests after a day, and other data as the operator configures."""

import time
from datetime import timedelta
from typing import Any

from holdfast.core import policy as policies
from holdfast.core.limits import AGENT_KEPT_MS, SUBQUEUE_KEPT_MS
from holdfast.keeping.duty import Duty
from holdfast.keeping.service import Service, log
from holdfast.ledger import Ledger

DUTY, SERVER_DUTY = "prune", "prune:server"
"""The duties of workers and of servers. They are separate, because each side is told how long to keep jobs by itself."""
DUTY_SECONDS = 120
EVERY_SECONDS, BUSY_EVERY_SECONDS = 60.0, 1.0
"""The interval between ticks, and the interval if the last one has left something."""
TICK_SECONDS = 0.5
"""After so long no further step of a tick begins: the sweeper has its turn in the same thread."""
STEPS_MAX = 100
"""Steps of one tick."""
BATCH = 1_000
"""Rows of one step."""
PRUNED_TOGETHER = ({"jobs", "failed"}, {"subqueues", "slots"})
"""One step deletes both of each pair."""
KEEP_MS_MAX = 3_660 * policies.DAY_MS
KEEP_BEATS = "30d"
"""How long a worker keeps the contents of heartbeats by default. Their hashes and all outcomes stay."""
KEPT: dict[str, Any] = {
    **dict.fromkeys(("requests", "workers", "sessions"), "1d"),
    "agents": timedelta(milliseconds=AGENT_KEPT_MS),
    "subqueues": timedelta(milliseconds=SUBQUEUE_KEPT_MS),
    **dict.fromkeys(("jobs", "failed", "beats")),
}
"""How long each kind of row is kept by default. Jobs and heartbeats are kept without end."""


class PruneService(Service):
    """Delete old rows while this worker has the duty."""

    name = "prune"
    duty: Duty

    def __init__(self, ledger: Ledger, holder: str, *, duty: str = DUTY, **kept: Any) -> None:
        """Set how long to keep each kind of row, instead of KEPT; None or "never" deletes nothing.

        `failed` are failed and dead-lettered jobs that are neither discarded nor replayed, `jobs` all other finished jobs.
        Processes that share a `duty` should keep the same: the one that has it decides.
        """
        self._ledger = ledger
        self.duty = Duty(ledger, duty, holder, DUTY_SECONDS)
        self.every_s = EVERY_SECONDS
        self.kept_ms = {
            name: policies.duration_ms(name, kept, 0, KEEP_MS_MAX)
            for name, kept in (KEPT | kept).items()
            if kept is not None and kept != "never"
        }
        self._kept = {f"{name}_before": timedelta(milliseconds=kept) for name, kept in self.kept_ms.items()}

    def tick(self) -> dict[str, int]:
        """Prune and return how many rows of each kind were deleted. Do nothing while another process has the duty.

        If there is more to delete than one tick may, the next one follows soon.
        """
        pruned: dict[str, int] = {}
        self.every_s = EVERY_SECONDS
        if not (self._kept and self.duty.take()):
            return pruned
        now = self._ledger.now()
        before = {name: now - kept for name, kept in self._kept.items()}
        end = time.monotonic() + TICK_SECONDS
        for number in range(STEPS_MAX):
            if number and time.monotonic() >= end:
                break
            step = self._ledger.prune(**before, batch=BATCH)
            pruned |= {name: pruned.get(name, 0) + count for name, count in step.items()}
            more = {name for name, count in step.items() if count}
            for pair in PRUNED_TOGETHER:
                if more & pair:
                    more |= pair
            before = {name: at for name, at in before.items() if name.removesuffix("_before") in more}
            if not before:
                break
        if before:
            self.every_s = BUSY_EVERY_SECONDS
        if any(pruned.values()):
            log.info("pruned", extra={name: count for name, count in pruned.items() if count})
        return pruned
