"""Threads for what may block, in a number that is known, and that nobody has to wait for."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger("holdfast.mcp")

T = TypeVar("T")
Work = Callable[[], object]


class _Line:
    """What one key has under way, and what stands in line behind that."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[Work] = deque()


class Crew:
    """At most `most` threads, and at most `each` of them for one key: who blocks holds up its own kind, not others.

    Neither a coroutine that is cancelled nor the end of the process waits for a thread that does not come back.
    """

    def __init__(self, name: str, *, most: int, each: int) -> None:
        self._name = name
        self._most = most
        self._each = each
        self._changed = threading.Condition()
        self._lines: dict[Hashable, _Line] = {}
        self._busy = 0

    def do(self, key: Hashable, work: Work) -> None:
        """Has it done, after what this key has asked for before."""
        with self._changed:
            self._lines.setdefault(key, _Line()).waiting.append(work)
            taken = self._next()
        if taken is not None:
            threading.Thread(target=self._run, args=taken, name=self._name, daemon=True).start()

    async def call(self, key: Hashable, work: Callable[[], T]) -> T:
        """What it answers, or raises. Whoever is cancelled does not get that; what has begun is done all the same."""
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                settle = partial(_settle, done, context.run(work), None)
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                settle = partial(_settle, done, None, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle)

        self.do(key, run)
        return await done

    def left(self, within_s: float) -> int:
        """How much is still under way or waiting, once there is nothing left or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, max(0.0, within_s))
            return sum(line.under_way + len(line.waiting) for line in self._lines.values())

    def _next(self) -> tuple[Hashable, Work] | None:
        """What can be begun. Under the lock."""
        if self._busy < self._most:
            for key, line in self._lines.items():
                if line.waiting and line.under_way < self._each:
                    line.under_way += 1
                    self._busy += 1
                    return key, line.waiting.popleft()
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
                self._end(key)
                taken = self._next()

    def _end(self, key: Hashable) -> None:
        line = self._lines[key]
        line.under_way -= 1
        self._busy -= 1
        if not line.under_way and not line.waiting:
            del self._lines[key]
            self._changed.notify_all()


def _settle(done: asyncio.Future[Any], answer: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(answer)
    else:
        done.set_exception(error)
