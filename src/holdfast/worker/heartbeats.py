"""The leases of the jobs that a worker holds, and the deadlines of its handlers.

Heartbeats have a thread and a connection that nothing else uses. Deadlines have their own thread, which never calls the ledger: a
slow ledger cannot delay them.
"""

from collections.abc import Callable, Collection, Sequence

from holdfast.core.model import Policy
from holdfast.errors import HoldfastError
from holdfast.keeping.leases import TICK_SECONDS, Fields, LeaseKeeper
from holdfast.keeping.service import Service
from holdfast.ledger import Beat, Job, Ledger
from holdfast.worker.context import Context
from holdfast.worker.runtime import WorkerRuntime, log

IDLE_TICK_SECONDS = 1.0
ANSWER_SECONDS_MIN, ANSWER_SECONDS_MAX = 1.0, 10.0
"""Limits of the wait for the answer to a heartbeat. Between them it is half of the time left of the shortest lease."""
GRACE_SECONDS = 5.0
"""How long a handler has to stop before it is abandoned."""


def heartbeat_seconds(policy: Policy) -> float:
    """Return the seconds between heartbeats: the policy's interval, at most half of the stall limit and of the lease."""
    return min(policy.heartbeat_interval_ms, policy.stall_after_ms / 2, policy.lease_ttl_ms / 2) / 1_000


class WorkerLeases(LeaseKeeper[Context]):
    """The leases of a worker. `ledger` is used for heartbeats only, so that no other call can delay them."""

    log = log

    def __init__(self, runtime: WorkerRuntime, ledger: Ledger, on_lost: Callable[[Context], None]) -> None:
        """`on_lost` is called with each attempt whose lease is lost."""
        super().__init__(runtime.monotonic)
        self._runtime = runtime
        self._ledger = ledger
        self._stop_handler = on_lost

    def leases(self) -> Collection[Context]:
        return self._runtime.leases.values()

    def send(self, beats: Sequence[tuple[Context, Fields | None]], left_s: float) -> Sequence[Beat | HoldfastError]:
        self._ledger.patience = min(max(left_s / 2, ANSWER_SECONDS_MIN), ANSWER_SECONDS_MAX)
        return self._ledger.heartbeat_many([(one.fence, fields) if fields else one.fence for one, fields in beats], wait=False)

    def resume(self, lease: Context) -> Job:
        return self._ledger.resume(lease.fence)

    def forget(self, lease: Context) -> None:
        self._runtime.forget(lease)

    def on_lost(self, lease: Context) -> None:
        self._stop_handler(lease)
        self._runtime.log_lost(lease, "lease lost", self._ledger)


class Deadlines(Service):
    """Time out attempts that take too long, and abandon handlers that do not stop. It never waits for the ledger."""

    name = "deadlines"
    log = log
    every_s = TICK_SECONDS

    def __init__(self, runtime: WorkerRuntime, time_out: Callable[[Context], None], abandon: Callable[[Context], None]) -> None:
        self._runtime = runtime
        self._time_out = time_out
        self._abandon = abandon
        self._stop_deadlines: dict[Context, float] = {}

    def tick(self) -> None:
        self.every_s = TICK_SECONDS if self._runtime.leases or self._stop_deadlines else IDLE_TICK_SECONDS
        now = self._runtime.monotonic()
        for context in list(self._runtime.leases.values()):
            if context.deadline is not None and now >= context.deadline and not context.timed_out:
                self._time_out(context)
                self.expect_stop(context)
        for context, until in list(self._stop_deadlines.items()):
            if now >= until:
                del self._stop_deadlines[context]
                self._abandon(context)

    def expect_stop(self, context: Context) -> None:
        """Abandon the attempt if its handler has not stopped after the grace period."""
        self._stop_deadlines.setdefault(context, self._runtime.monotonic() + GRACE_SECONDS)
