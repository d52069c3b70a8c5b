"""Run handlers on an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.keeping.service import Service
from holdfast.worker.attempt import AttemptRunner
from holdfast.worker.context import Context
from holdfast.worker.runtime import log

BLOCKED_SECONDS = 2.0
"""After this long without an answer from the loop, a warning is logged."""
CLOSE_SECONDS = 1.0
"""How long cancelled tasks have to clean up when the loop ends."""


class EventLoopPool:
    """Attempts as tasks on an event loop, which has its own thread."""

    def __init__(self, size: int, attempts: AttemptRunner, on_capacity: Callable[[], None]) -> None:
        self.size = size
        self.low_water = 0
        self._attempts = attempts
        self._on_capacity = on_capacity
        self._tasks: dict[Context, asyncio.Task[None] | None] = {}
        """The task of each attempt; None until it begins. The loop begins it at once unless a handler blocks the loop."""
        self._submitted_at = 0.0
        self._blocked = False
        """The loop did not begin some jobs, and they were taken back. It gets no more jobs until it answers."""
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, contexts: Iterable[Context]) -> None:
        loop = self._loop or self._start()
        submitted = list(contexts)
        self._submitted_at = self._attempts.monotonic()
        for context in submitted:
            context.on_interrupt = self._on_interrupt
            self._tasks.setdefault(context, None)
        loop.call_soon_threadsafe(self._spawn, submitted)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="holdfast-loop", daemon=True)
        self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            _cancel_once(task)
        if tasks:
            # Their cleanup code cannot run later.
            loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_SECONDS))
        loop.close()

    def _spawn(self, contexts: list[Context]) -> None:
        assert self._loop is not None
        for context in contexts:
            with self._mutex:
                if context not in self._tasks:
                    continue
                self._tasks[context] = task = self._loop.create_task(self._attempts.run_async(context))
            task.add_done_callback(partial(self._ended, context))

    def _ended(self, context: Context, _: object) -> None:
        self._tasks.pop(context, None)
        self._on_capacity()

    def _on_interrupt(self, context: Context) -> None:
        """Cancel the task if the lease is lost or the attempt timed out. A soft cancel only sets a flag."""
        if (context.lost or context.timed_out) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, context)

    def _cancel(self, context: Context) -> None:
        task = self._tasks.get(context)
        if task is not None:
            _cancel_once(task)

    def call(self, function: Callable[[], None]) -> bool:
        """Call the function on the loop. Return False if there is no loop."""
        if self._loop is None or self._loop.is_closed():
            return False
        self._loop.call_soon_threadsafe(function)
        return True

    def prefetch(self) -> int:
        return -self.size if self._blocked else 0

    def held(self) -> int:
        return len(self._tasks)

    def has_waited_since(self, moment: float) -> bool:
        return self._submitted_at < moment and None in list(self._tasks.values())

    def take_waiting(self) -> list[Context]:
        with self._mutex:
            waiting = [context for context, task in list(self._tasks.items()) if task is None]
            for context in waiting:
                del self._tasks[context]
        if waiting:
            self._blocked = True
            self.call(self._on_answer)
        return waiting

    def _on_answer(self) -> None:
        """Note that the loop runs again."""
        self._blocked = False
        self._on_capacity()

    def running(self) -> list[Context]:
        return list(self._tasks)

    def abandon(self, context: Context) -> None:
        context.abandoned = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, context)

    def close(self) -> None:
        """Stop the loop. A loop that a handler blocks keeps running: Python cannot stop it."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2 * CLOSE_SECONDS)


def _cancel_once(task: "asyncio.Task[Any]") -> None:
    """Cancel a task. A second cancel would interrupt its cleanup code."""
    if not task.cancelling():
        task.cancel()


class LoopWatchdog(Service):
    """A service that warns when a handler blocks the event loop. Such a handler stops all others, and nothing else reports it."""

    name = "loop"
    every_s = 1.0

    def __init__(self, pool: EventLoopPool) -> None:
        self._pool = pool
        self._called_at: float | None = None
        self._is_reported = False

    def tick(self) -> None:
        now = time.monotonic()
        if self._called_at is None:
            self._called_at = now
            if not self._pool.call(self._on_answer):
                self._called_at = None
        elif now - self._called_at >= BLOCKED_SECONDS and not self._is_reported:
            self._is_reported = True
            jobs = sorted(context.job.id for context in self._pool.running())
            log.warning("a handler blocks the event loop: no other handler on it can run", extra={"jobs": jobs[:20]})

    def _on_answer(self) -> None:
        if self._is_reported and self._called_at is not None:
            log.warning("the event loop was blocked for %.1f s", time.monotonic() - self._called_at)
        self._is_reported, self._called_at = False, None
