"""Pools that run handlers: the interface of all pools, and the pool of threads.

The other pools are in `event_loop` and `processes`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from holdfast.worker.context import Context
from holdfast.worker.runtime import WorkerRuntime, log

QUICK_SECONDS = 0.0005
"""If attempts take less than this on average, one thread runs them all."""
DURATION_SECONDS_MIN = 1e-6
"""Added to each attempt's time, because the clock may measure 0."""
PREFETCH_SECONDS = 0.05
"""A worker claims no more jobs than it can begin within this time, as estimated from the last attempts."""
PREFETCH_MAX = 2_000
STUCK_SECONDS = 1.0
"""The assumed average time of attempts after some were taken back unstarted. It prevents prefetching."""
WATCH_SECONDS = 0.01


class AttemptPool(Protocol):
    """A pool that runs up to `size` attempts at once."""

    size: int
    low_water: int
    """The pool requests more attempts when this many or fewer are waiting."""

    def submit(self, contexts: Iterable[Context]) -> None:
        """Run these attempts as soon as there is capacity."""

    def prefetch(self) -> int:
        """Return how many attempts beyond its size it can begin very soon; minus its size if it can begin none."""

    def held(self) -> int:
        """Return the number of attempts that run or wait."""

    def has_waited_since(self, moment: float) -> bool:
        """Return whether attempts are waiting, all of them submitted before this moment."""

    def take_waiting(self) -> list[Context]:
        """Remove and return the attempts that have not begun. If there are any, prefetch none until attempts are quick again."""

    def running(self) -> list[Context]: ...

    def abandon(self, context: Context) -> None:
        """Stop the attempt as far as possible: this worker no longer holds its job."""

    def close(self) -> None:
        """Free the pool. Nothing is submitted after this."""


class ThreadPool:
    """Threads that take attempts from one queue.

    If attempts are slow, up to `size` threads run them. If they are quick, one thread runs them all, because more threads would
    only compete for the interpreter; another thread watches that it is not stuck. A thread that is stuck in a lost attempt is
    replaced, because Python cannot stop it.
    """

    def __init__(
        self, size: int, runtime: WorkerRuntime, run: Callable[[Context], None], on_capacity: Callable[[], None], name: str
    ) -> None:
        self.size = size
        self.low_water = 0
        self._runtime = runtime
        self._run_attempt = run
        self._on_capacity = on_capacity
        self._name = name
        self._waiting: deque[Context] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._running: dict[int, Context] = {}
        self._mutex = threading.Lock()
        self._threads = 0
        self._active = 0
        self._has_watcher = False
        self._begun_count = 0
        self._average_seconds = 1.0
        """The moving average of the seconds that an attempt takes."""
        self._submitted_at = float("-inf")

    def submit(self, contexts: Iterable[Context]) -> None:
        self._submitted_at = self._runtime.monotonic()
        before = len(self._waiting)
        self._waiting.extend(contexts)
        for _ in range(min(self.size, len(self._waiting) - before) if self._average_seconds > QUICK_SECONDS else 1):
            self._wake_thread()

    def _wake_thread(self) -> None:
        self._wakeups.put(True)
        if self._threads < min(self.size, self._active + self._has_watcher + self._wakeups.qsize()):
            self._add_thread()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=f"holdfast-{self._name}-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while self._wakeups.get():
            if self._join_or_watch() and not self._run_waiting():
                return

    def _join_or_watch(self) -> bool:
        """Return whether this thread should run attempts; if so, count it as active. Until then it may watch the other thread."""
        with self._mutex:
            if self._average_seconds > QUICK_SECONDS or not self._active:
                self._active += 1
                return True
            if self._has_watcher:
                return False
            self._has_watcher = True
        stuck = self._watch()
        with self._mutex:
            self._has_watcher = False
            self._active += stuck
        if stuck:
            self._wake_thread()
        return stuck

    def _watch(self) -> bool:
        """Watch while another thread runs the waiting attempts. Return True if it is stuck, False when none is waiting."""
        while self._waiting:
            begun_count = self._begun_count
            time.sleep(WATCH_SECONDS)
            if self._waiting and self._begun_count == begun_count:
                return True
        return False

    def _run_waiting(self) -> bool:
        """Run attempts until none is waiting. Return False if this thread was replaced meanwhile."""
        waiting, running, me, monotonic = self._waiting, self._running, threading.get_ident(), self._runtime.monotonic
        began = monotonic()
        while True:
            with self._mutex:
                if not waiting:
                    self._active -= 1
                    return True
                context = running[me] = waiting.popleft()
            self._begun_count += 1
            self._run_attempt(context)
            running.pop(me, None)
            ended = monotonic()
            self._average_seconds += 0.2 * (ended - began + DURATION_SECONDS_MIN - self._average_seconds)
            began = ended
            if context.abandoned:
                self._runtime.abandoned -= 1
                log.warning("an abandoned handler has ended", extra={"job_id": context.job.id})
                return False
            if len(waiting) <= self.low_water:
                self._on_capacity()

    def prefetch(self) -> int:
        threads = 1 if self._average_seconds <= QUICK_SECONDS else self.size
        return min(PREFETCH_MAX, int(threads * PREFETCH_SECONDS / self._average_seconds))

    def held(self) -> int:
        """Return the number of attempts that run or wait. It is never too low: a stopping worker waits until it is 0."""
        with self._mutex:
            return len(self._waiting) + len(self._running)

    def has_waited_since(self, moment: float) -> bool:
        return self._submitted_at < moment and bool(self._waiting)

    def take_waiting(self) -> list[Context]:
        with self._mutex:
            waiting = list(self._waiting)
            self._waiting.clear()
        if waiting:
            # The attempts that block them have not ended and are not in the average yet. Without this, the worker would claim
            # the same jobs again at once.
            self._average_seconds = max(self._average_seconds, STUCK_SECONDS)
        return waiting

    def running(self) -> list[Context]:
        with self._mutex:
            return list(self._running.values())

    def abandon(self, context: Context) -> None:
        """Replace the attempt's thread. The old thread runs until the handler returns, and the worker does not wait for it."""
        context.abandoned = True
        self._runtime.abandoned += 1
        for thread, running in list(self._running.items()):
            if running is context:
                self._running.pop(thread, None)
        with self._mutex:
            self._active -= 1
        self._add_thread()
        self._wakeups.put(True)
        log.error(
            "abandoned a handler that does not stop: this worker no longer holds its job",
            extra={"job_id": context.job.id, "attempt": context.job.attempt, "kind": context.job.kind},
        )
        self._on_capacity()

    def close(self) -> None:
        for _ in range(self._threads):
            self._wakeups.put(False)
