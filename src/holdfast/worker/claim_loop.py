"""The claim loop: which kinds to claim, how many, from which queues, and how to wait when there are no jobs."""

import contextlib
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.model import UNDO_KIND, Policy
from holdfast.errors import HoldfastError
from holdfast.keeping.outage import Outage
from holdfast.ledger import HeldJob
from holdfast.store.base import Waiter
from holdfast.worker import heartbeats
from holdfast.worker.batches import BatchPool
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import WorkerRuntime, log
from holdfast.worker.thread_pool import AttemptPool

WAIT_SLICE_SECONDS = 0.25
"""The longest single wait, so that a worker stops soon after a request to stop."""
POLL_SECONDS = 30.0
"""How often an idle worker polls, in case a wake-up was lost."""
PAUSE_SECONDS = 0.02
"""The shortest wait before the next claim, and how often a worker with a full pool polls for wake-ups."""
YIELD_SECONDS = 0.001
"""The pause after a claim that emptied the queues. It lets the claimed jobs begin: the interpreter runs one thread at a time."""
RETRY_SECONDS = 1.0
"""The pause after a claim that failed."""
BATCH_MAX = 1_000
"""The most jobs of one claim. More jobs take several claims, so that the first ones begin meanwhile."""
WEIGHTED_MAX = 50
"""The most jobs of one claim if queues have weights: weights take effect only over many claims."""
UNANSWERED_POLL_SECONDS = 1.0
"""How often to check for jobs of a claim whose answer was lost."""
STALE_SECONDS = 1.0
"""A job that could not begin for this long is released."""


class ClaimGroup(NamedTuple):
    """Kinds that are claimed together: they share a pool and a limit, and either all have checks or none has."""

    pool: AttemptPool
    kinds: tuple[str, ...]
    limit: int | None
    start: bool
    undo_pool: AttemptPool | None = None
    """The pool of undo jobs, if they are claimed together with the kinds of another pool."""


def claim_groups(handlers: Sequence[Handler], pools: Mapping[str, AttemptPool]) -> list[ClaimGroup]:
    """Return the claim groups of a worker. A kind with its own limit is a group of its own."""
    shared: dict[tuple[str, bool], list[str]] = {}
    groups: list[ClaimGroup] = []
    for handler in handlers:
        start = not handler.checks
        if handler.concurrency is not None:
            groups.append(ClaimGroup(pools[handler.pool], (handler.kind,), handler.concurrency, start))
        else:
            shared.setdefault((handler.pool, start), []).append(handler.kind)
    for (pool, start), kinds in shared.items():
        groups.append(ClaimGroup(pools[pool], tuple(kinds), None, start))
    return _with_undo_jobs(groups)


def _with_undo_jobs(groups: list[ClaimGroup]) -> list[ClaimGroup]:
    """Merge undo jobs into another group: a separate claim for so rare a kind would scan all jobs that are ready."""
    undo_groups = [group for group in groups if group.kinds == (UNDO_KIND,)]
    other_groups = sorted((group for group in groups if group.kinds != (UNDO_KIND,)), key=_is_restricted)
    if not undo_groups or not other_groups or isinstance(other_groups[0].pool, BatchPool):
        return groups
    return [other_groups[0]._replace(kinds=(*other_groups[0].kinds, UNDO_KIND), undo_pool=undo_groups[0].pool), *other_groups[1:]]


def _is_restricted(group: ClaimGroup) -> bool:
    """Return whether a group is not claimed for at times when other groups are."""
    return group.limit is not None or isinstance(group.pool, BatchPool)


class QueueOrder:
    """The order in which a claim reads the queues: as listed, or drawn by weight."""

    def __init__(self, queues: Sequence[str] | Mapping[str, int], draw: Callable[[], float] = random.random) -> None:
        self._weights = dict(queues) if isinstance(queues, Mapping) else None
        self._names = list(queues)
        self._draw = draw
        self.limit_max = BATCH_MAX if self._weights is None else WEIGHTED_MAX

    def next(self) -> list[str]:
        """Return the order for the next claim.

        With weights, each queue comes first in proportion to its weight, and so do the queues after it (Efraimidis–Spirakis).
        """
        if self._weights is None:
            return self._names
        weights = self._weights
        return sorted(self._names, key=lambda name: self._draw() ** (1.0 / weights[name]), reverse=True)


class ClaimLoop:
    """Claim jobs in a thread of its own and submit them to the pools. `release` is called with a job that cannot begin."""

    def __init__(
        self, runtime: WorkerRuntime, groups: Sequence[ClaimGroup], order: QueueOrder, release: Callable[[Context], None]
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._order = order
        self._release = release
        self._kinds = tuple(kind for group in groups for kind in group.kinds)
        self._capacity_freed = threading.Event()
        """Set when a pool has capacity again and this loop waits for that."""
        self._waits_for_capacity = False
        self._outage = Outage(log, "claim")
        self._unanswered_checked_at = float("-inf")
        """When the loop last checked for jobs of claims whose answers were lost."""
        self._last_policy: Policy | None = None
        self._last_timing = (0.0, 0.0)
        """Heartbeat period and lease time of `_last_policy`. Most jobs have the same policy, so both are computed once."""
        self._thread = threading.Thread(target=self._run, name="holdfast-claims", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify_capacity(self) -> None:
        """Wake the claim loop because a pool has capacity."""
        if self._waits_for_capacity:
            # Set the event once: hundreds of attempts may end before the claim thread runs.
            self._waits_for_capacity = False
            self._capacity_freed.set()

    def join(self) -> None:
        self._capacity_freed.set()
        self._thread.join()

    # Waiting and claiming

    def _run(self) -> None:
        while not self._runtime.stopping.is_set():
            try:
                self._claim_until_stopped()
            except HoldfastError as error:
                self._outage.began(error)
            except Exception:  # noqa: BLE001 - a live worker must not stop claiming
                log.exception("claiming failed")
            self._runtime.stopping.wait(RETRY_SECONDS)
        with contextlib.suppress(HoldfastError):
            self._recover_unanswered()

    def _claim_until_stopped(self) -> None:
        waiter = self._runtime.ledger.waiter()
        try:
            while not self._runtime.stopping.is_set():
                self._claim_round(waiter)
        finally:
            waiter.close()

    def _claim_round(self, waiter: Waiter) -> None:
        self._capacity_freed.clear()
        self._waits_for_capacity = True
        if (
            self._runtime.ledger.has_unanswered
            and self._runtime.monotonic() >= self._unanswered_checked_at + UNANSWERED_POLL_SECONDS
        ):
            self._recover_unanswered()
        requests = [(group, count) for group in self._groups if (count := self._claim_count(group)) > 0]
        if not requests:
            if not self._capacity_freed.wait(STALE_SECONDS):
                self._release_stale()
            return
        self._release_stale()
        # A group without capacity is not claimed for. The loop has to be woken when its pool has capacity again.
        pool_is_full = len(requests) < len(self._groups)
        self._waits_for_capacity = pool_is_full
        total = emptied = 0
        for group, count in requests:
            if self._runtime.stopping.is_set():
                return
            claimed = self._claim(group, count)
            total += claimed
            emptied += claimed < count
        self._outage.over()
        if not total:
            self._wait_for_work(waiter, pool_is_full=pool_is_full)
        elif emptied == len(requests):
            self._runtime.stopping.wait(YIELD_SECONDS)

    def _claim_count(self, group: ClaimGroup) -> int:
        """Return how many jobs to claim. Return 0 if the batch would be too small, to avoid many small claims."""
        pool, held = group.pool, group.pool.held()
        prefetch = pool.prefetch() if group.limit is None else min(0, pool.prefetch())
        pool.low_water = prefetch // 2
        capacity = pool.size + prefetch - held
        if group.limit is not None:
            capacity = min(capacity, group.limit - self._count_held(group))
        elif held > pool.size and capacity < prefetch // 2:
            return 0
        return min(capacity, self._order.limit_max)

    def _claim(self, group: ClaimGroup, count: int) -> int:
        runtime = self._runtime
        sent_at = runtime.monotonic()
        jobs = runtime.ledger.claim(
            runtime.name,
            self._order.next(),
            limit=count,
            kinds=group.kinds,
            start=group.start,
            keep=False,
            labels=runtime.labels,
        )
        if jobs:
            contexts = [self._make_context(job, sent_at) for job in jobs]
            runtime.hold(*contexts)
            if group.start:
                runtime.log_started(contexts)
            self._dispatch(group, contexts)
        return len(jobs)

    def _dispatch(self, group: ClaimGroup, contexts: list[Context]) -> None:
        if group.undo_pool is not None:
            group.undo_pool.submit([context for context in contexts if context.job.kind == UNDO_KIND])
            contexts = [context for context in contexts if context.job.kind != UNDO_KIND]
        group.pool.submit(contexts)

    def _recover_unanswered(self) -> None:
        """Run the jobs of claims whose answers were lost. Release those for which there is no capacity any more.

        Only this thread claims, and the ledger returns such a job once. So no handler can have run one of them before.
        """
        runtime = self._runtime
        self._unanswered_checked_at = sent_at = runtime.monotonic()
        jobs = runtime.ledger.unanswered(runtime.name)
        if not jobs:
            return
        now = runtime.ledger.now()
        log.info("found jobs of a claim whose answer was lost", extra={"worker": runtime.name, "jobs": len(jobs)})
        for job in jobs:
            assert job.last_heartbeat_at is not None
            context = self._make_context(job, sent_at - (now - job.last_heartbeat_at).total_seconds())
            # Send a heartbeat at once: it renews the lease, and its answer shows whether the job was cancelled meanwhile.
            context.due = sent_at
            group = next(group for group in self._groups if job.kind in group.kinds)
            has_capacity = group.limit is None or self._count_held(group) < group.limit
            runtime.hold(context)
            if has_capacity and not runtime.stopping.is_set():
                self._dispatch(group, [context])
            else:
                self._release(context)

    def _count_held(self, group: ClaimGroup) -> int:
        """Return how many jobs of a kind with its own limit this worker holds."""
        return sum(1 for context in list(self._runtime.leases.values()) if context.job.kind == group.kinds[0])

    def _make_context(self, job: HeldJob, claimed_at: float) -> Context:
        handler, policy = self._runtime.served[job.kind], job.policy
        assert policy is not None
        if policy is not self._last_policy:
            self._last_policy, self._last_timing = policy, (heartbeats.heartbeat_seconds(policy), policy.lease_ttl_ms / 1_000)
        return handler.context_type(job, handler, self._runtime, *self._last_timing, claimed_at)

    def _wait_for_work(self, waiter: Waiter, *, pool_is_full: bool) -> None:
        """Wait for a wake-up, until a delayed job is due, or, with `pool_is_full`, until a pool has capacity again."""
        runtime = self._runtime
        until = runtime.ledger.until_ready(self._order.next(), kinds=self._kinds, worker=runtime.name, labels=runtime.labels)
        longest = UNANSWERED_POLL_SECONDS if runtime.ledger.has_unanswered else POLL_SECONDS
        # A job that is ready was not claimed if another transaction has locked it. Pause before the next claim then.
        left = longest if until is None else min(max(until, PAUSE_SECONDS), longest)
        deadline = runtime.monotonic() + left
        while not runtime.stopping.is_set() and not self._capacity_freed.is_set():
            self._release_stale()
            left = deadline - runtime.monotonic()
            if left <= 0 or self._wait_slice(waiter, left, pool_is_full):
                return

    def _wait_slice(self, waiter: Waiter, seconds: float, pool_is_full: bool) -> bool:
        """Wait for a short time. Return whether there was a wake-up.

        We cannot wait for capacity and for a wake-up at once. Capacity comes more often: wait for it and poll the wake-up.
        """
        if not pool_is_full:
            return waiter.wait(min(seconds, WAIT_SLICE_SECONDS))
        return not self._capacity_freed.wait(min(seconds, PAUSE_SECONDS)) and waiter.wait(YIELD_SECONDS)

    def _release_stale(self) -> None:
        """Release jobs that wait too long for a busy pool, so that another worker can run them."""
        oldest = self._runtime.monotonic() - STALE_SECONDS
        for group in self._groups:
            if group.pool.has_waited_since(oldest):
                for context in group.pool.take_waiting():
                    self._release(context)
