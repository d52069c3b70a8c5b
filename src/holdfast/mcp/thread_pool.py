"""A pool of daemon threads for blocking calls, with a limit for each key."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from holdfast.aio.thread_calls import call_in_thread

log = logging.getLogger("holdfast.mcp")

T = TypeVar("T")
Work = Callable[[], object]


class _KeyQueue:
    """The number of running calls of one key, and its waiting calls."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[Work] = deque()


class KeyedThreadPool:
    """At most `threads_max` threads, and at most `per_key_max` of them for one key, so that a blocked key does not block others.

    Neither a cancelled coroutine nor the end of the process waits for a blocked thread.
    """

    def __init__(self, name: str, *, threads_max: int, per_key_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._per_key_max = per_key_max
        self._changed = threading.Condition()
        self._queues: dict[Hashable, _KeyQueue] = {}
        self._busy = 0

    def submit(self, key: Hashable, work: Work) -> None:
        """Run `work` in a thread, after the earlier work of this key."""
        with self._changed:
            self._queues.setdefault(key, _KeyQueue()).waiting.append(work)
            taken = self._take_next()
        if taken is not None:
            threading.Thread(target=self._run, args=taken, name=self._name, daemon=True).start()

    async def call(self, key: Hashable, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return or raise its result. If the caller is cancelled, work that has started goes on."""
        return await call_in_thread(partial(self.submit, key), work)

    def wait_for_idle(self, within_s: float) -> int:
        """Wait until there is no work, or the time is over. Return how many calls are still running or waiting."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queues, max(0.0, within_s))
            return sum(queue.under_way + len(queue.waiting) for queue in self._queues.values())

    def _take_next(self) -> tuple[Hashable, Work] | None:
        """Take work that can be started now, if there is any. Under the lock."""
        if self._busy < self._threads_max:
            for key, queue in self._queues.items():
                if queue.waiting and queue.under_way < self._per_key_max:
                    queue.under_way += 1
                    self._busy += 1
                    return key, queue.waiting.popleft()
        return None

    def _run(self, key: Hashable, work: Work) -> None:
        taken: tuple[Hashable, Work] | None = (key, work)
        while taken is not None:
            key, work = taken
            try:
                work()
            except Exception:
                log.exception("a thread failed")
            with self._changed:
                self._finish(key)
                taken = self._take_next()

    def _finish(self, key: Hashable) -> None:
        queue = self._queues[key]
        queue.under_way -= 1
        self._busy -= 1
        if not queue.under_way and not queue.waiting:
            del self._queues[key]
            self._changed.notify_all()
