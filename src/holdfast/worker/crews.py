"""Where handlers run: threads of this process, its event loop (`loop`), or child processes (`processes`)."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from holdfast.worker.context import Context
from holdfast.worker.shift import Shift, log

QUICK_SECONDS = 0.0005
"""Attempts that take less than this are run by one thread."""
MOMENT_SECONDS = 1e-6
"""What every attempt takes at least, whatever the clock can tell apart."""
SOON_SECONDS = 0.05
"""A worker claims no more than it will begin within this time, as far as the last attempts tell."""
AHEAD_MAX = 1_000
STUCK_SECONDS = 1.0
"""What attempts are taken to last once some have waited in vain: nothing is claimed ahead then."""
WATCH_SECONDS = 0.01


class Crew(Protocol):
    """Room for a number of attempts at once."""

    size: int
    low: int
    """It asks for more when no more than this many wait."""

    def give(self, contexts: Iterable[Context]) -> None:
        """Run these as soon as there is room."""

    def ahead(self) -> int:
        """How many more than it can run at once it will begin in no time; minus its size where it can begin none."""

    def held(self) -> int:
        """How many attempts it has, running or not yet begun."""

    def waits_since(self, moment: float) -> bool:
        """Whether all that wait to begin were given before this moment, and there are any."""

    def take_back(self) -> list[Context]:
        """Those that have not begun. Where there are any, no more is taken ahead until attempts turn out quick again."""

    def running(self) -> list[Context]: ...

    def abandon(self, context: Context) -> None:
        """Stop it as far as can be: it is not this worker's any more."""

    def close(self) -> None:
        """Nothing more will be given."""


class ThreadCrew:
    """Threads that take attempts from one line.

    Where attempts take their time, as many threads run as there is room for. Where they are quick, one thread runs them all,
    since more would only get in each other's way, and another watches that it is not stuck. A thread that is stuck in a lost
    attempt is replaced: Python cannot stop it.
    """

    def __init__(self, size: int, shift: Shift, run: Callable[[Context], None], freed: Callable[[], None], name: str) -> None:
        self.size = size
        self.low = 0
        self._shift = shift
        self._run_attempt = run
        self._freed = freed
        self._name = name
        self._line: deque[Context] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._running: dict[int, Context] = {}
        self._mutex = threading.Lock()
        self._threads = 0
        self._active = 0
        self._watched = False
        self._taken = 0
        self._average = 1.0
        """Seconds an attempt takes, lately."""
        self._given = float("-inf")

    def give(self, contexts: Iterable[Context]) -> None:
        self._given = self._shift.monotonic()
        before = len(self._line)
        self._line.extend(contexts)
        for _ in range(min(self.size, len(self._line) - before) if self._average > QUICK_SECONDS else 1):
            self._call()

    def _call(self) -> None:
        self._calls.put(True)
        if self._threads < min(self.size, self._active + self._watched + self._calls.qsize()):
            self._add_thread()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=f"holdfast-{self._name}-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while self._calls.get():
            if self._joins() and not self._serve():
                return

    def _joins(self) -> bool:
        """Whether this thread is wanted; if so, it counts as active."""
        with self._mutex:
            if self._average > QUICK_SECONDS or not self._active:
                self._active += 1
                return True
            if self._watched:
                return False
            self._watched = True
        stuck = self._watch()
        with self._mutex:
            self._watched = False
            self._active += stuck
        if stuck:
            self._call()
        return stuck

    def _watch(self) -> bool:
        """While others run what waits; True when they do not."""
        while self._line:
            taken = self._taken
            time.sleep(WATCH_SECONDS)
            if self._line and self._taken == taken:
                return True
        return False

    def _serve(self) -> bool:
        """Run what waits until nothing does; False for a thread whose place was taken meanwhile."""
        line, running, me, monotonic = self._line, self._running, threading.get_ident(), self._shift.monotonic
        began = monotonic()
        while True:
            with self._mutex:
                if not line:
                    self._active -= 1
                    return True
                context = running[me] = line.popleft()
            self._taken += 1
            self._run_attempt(context)
            running.pop(me, None)
            ended = monotonic()
            self._average += 0.2 * (ended - began + MOMENT_SECONDS - self._average)
            began = ended
            if context.abandoned:
                self._shift.abandoned -= 1
                log.warning("an abandoned handler has ended after all", extra={"job_id": context.job.id})
                return False
            if len(line) <= self.low:
                self._freed()

    def ahead(self) -> int:
        hands = 1 if self._average <= QUICK_SECONDS else self.size
        return min(AHEAD_MAX, int(hands * SOON_SECONDS / self._average))

    def held(self) -> int:
        """Never too few: a worker that stops waits until this is nothing."""
        with self._mutex:
            return len(self._line) + len(self._running)

    def waits_since(self, moment: float) -> bool:
        return self._given < moment and bool(self._line)

    def take_back(self) -> list[Context]:
        with self._mutex:
            found = list(self._line)
            self._line.clear()
        if found:
            # What holds them up has not ended yet, and so does not count in the average: they would be claimed again at once.
            self._average = max(self._average, STUCK_SECONDS)
        return found

    def running(self) -> list[Context]:
        with self._mutex:
            return list(self._running.values())

    def abandon(self, context: Context) -> None:
        """Its thread goes on until the handler returns; another takes its place, and nobody waits for it."""
        context.abandoned = True
        self._shift.abandoned += 1
        for thread, running in list(self._running.items()):
            if running is context:
                self._running.pop(thread, None)
        with self._mutex:
            self._active -= 1
        self._add_thread()
        self._calls.put(True)
        log.error(
            "abandoned a handler that does not stop: its job is not ours any more",
            extra={"job_id": context.job.id, "attempt": context.job.attempt, "kind": context.job.kind},
        )
        self._freed()

    def close(self) -> None:
        for _ in range(self._threads):
            self._calls.put(False)
