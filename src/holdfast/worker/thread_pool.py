"""Where handlers run: threads of this process, its event loop (`loop`), or child processes (`processes`)."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from holdfast.worker.context import Context
from holdfast.worker.runtime import WorkerRuntime, log

QUICK_SECONDS = 0.0005
"""Attempts that take less than this are run by one thread."""
DURATION_SECONDS_MIN = 1e-6
"""What every attempt takes at least, whatever the clock can tell apart."""
PREFETCH_SECONDS = 0.05
"""A worker claims no more than it will begin within this time, as far as the last attempts tell."""
PREFETCH_MAX = 1_000
STUCK_SECONDS = 1.0
"""What attempts are taken to last once some have waited in vain: nothing is claimed ahead then."""
WATCH_SECONDS = 0.01


class AttemptPool(Protocol):
    """Room for a number of attempts at once."""

    size: int
    low_water: int
    """It asks for more when no more than this many wait."""

    def submit(self, contexts: Iterable[Context]) -> None:
        """Run these as soon as there is room."""

    def prefetch(self) -> int:
        """How many more than it can run at once it will begin in no time; minus its size where it can begin none."""

    def held(self) -> int:
        """How many attempts it has, running or not yet begun."""

    def has_waited_since(self, moment: float) -> bool:
        """Whether all that wait to begin were given before this moment, and there are any."""

    def take_waiting(self) -> list[Context]:
        """Those that have not begun. Where there are any, no more is taken ahead until attempts turn out quick again."""

    def running(self) -> list[Context]: ...

    def abandon(self, context: Context) -> None:
        """Stop it as far as can be: it is not this worker's any more."""

    def close(self) -> None:
        """Nothing more will be given."""


class ThreadPool:
    """Threads that take attempts from one line.

    Where attempts take their time, as many threads run as there is room for. Where they are quick, one thread runs them all,
    since more would only get in each other's way, and another watches that it is not stuck. A thread that is stuck in a lost
    attempt is replaced: Python cannot stop it.
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
        """Seconds an attempt takes, lately."""
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
        """Whether this thread is wanted; if so, it counts as active."""
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
        """While others run what waits; True when they do not."""
        while self._waiting:
            begun_count = self._begun_count
            time.sleep(WATCH_SECONDS)
            if self._waiting and self._begun_count == begun_count:
                return True
        return False

    def _run_waiting(self) -> bool:
        """Run what waits until nothing does; False for a thread whose place was taken meanwhile."""
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
                log.warning("an abandoned handler has ended after all", extra={"job_id": context.job.id})
                return False
            if len(waiting) <= self.low_water:
                self._on_capacity()

    def prefetch(self) -> int:
        threads = 1 if self._average_seconds <= QUICK_SECONDS else self.size
        return min(PREFETCH_MAX, int(threads * PREFETCH_SECONDS / self._average_seconds))

    def held(self) -> int:
        """Never too few: a worker that stops waits until this is nothing."""
        with self._mutex:
            return len(self._waiting) + len(self._running)

    def has_waited_since(self, moment: float) -> bool:
        return self._submitted_at < moment and bool(self._waiting)

    def take_waiting(self) -> list[Context]:
        with self._mutex:
            found = list(self._waiting)
            self._waiting.clear()
        if found:
            # What holds them up has not ended yet, and so does not count in the average: they would be claimed again at once.
            self._average_seconds = max(self._average_seconds, STUCK_SECONDS)
        return found

    def running(self) -> list[Context]:
        with self._mutex:
            return list(self._running.values())

    def abandon(self, context: Context) -> None:
        """Its thread goes on until the handler returns; another takes its place, and nobody waits for it."""
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
            "abandoned a handler that does not stop: its job is not ours any more",
            extra={"job_id": context.job.id, "attempt": context.job.attempt, "kind": context.job.kind},
        )
        self._on_capacity()

    def close(self) -> None:
        for _ in range(self._threads):
            self._wakeups.put(False)
