"""The threads in which verbs run that coroutines wait for."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.errors import Unavailable
from holdfast.store.awaiting import AWAITED, Awaited

T = TypeVar("T")

CALLS_MAX = 16
"""Verbs of one ledger that run at once. Further ones wait for their turn."""
WAITS_MAX = 64
"""Waits of one ledger at once: `wait`, `follow` and `waiter().wait`. A further one is refused."""


class Threads:
    """Threads for calls, which are short, and for waits, which may be long."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """A pool starts threads only as calls come in."""
        self._calls = ThreadPoolExecutor(CALLS_MAX, "holdfast-call")
        self._waits = ThreadPoolExecutor(WAITS_MAX, "holdfast-wait")
        self._room = threading.BoundedSemaphore(WAITS_MAX)
        self._pid = os.getpid()

    def _check_process(self) -> None:
        """A forked child has none of its parent's threads: a call would wait for ever."""
        if os.getpid() != self._pid:
            self._begin()

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread.

        If the coroutine is cancelled, `work` goes on to its end unless it has not begun. If it uses a connection of the
        caller's, the cancellation waits for that end: no statement of it may run in a later transaction.
        """
        self._check_process()
        return await _run(self._calls, work)

    async def wait(self, work: Callable[[], T]) -> T:
        """Run `work`, which may take long, in a thread. It ends within about a second after a cancellation."""
        self._check_process()
        room = self._room
        if not room.acquire(blocking=False):
            raise Unavailable(f"there are {WAITS_MAX} waits at once already", waits_max=WAITS_MAX)
        try:
            return await _run(self._waits, work)
        finally:
            room.release()

    def close(self) -> None:
        """End the threads. A later call starts new ones: whether it is refused is for the ledger to say."""
        calls, waits = self._calls, self._waits
        self._begin()
        calls.shutdown(wait=False)
        waits.shutdown(wait=False)


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    awaited = Awaited(loop)
    context = contextvars.copy_context()
    context.run(AWAITED.set, awaited)
    running = pool.submit(context.run, work)
    outcome = asyncio.wrap_future(running, loop=loop)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        await _leave(running, outcome, awaited)
        raise


async def _leave(running: "Future[Any]", outcome: "asyncio.Future[Any]", awaited: Awaited) -> None:
    running.cancel()
    if not awaited.abandon():
        outcome.cancel()  # what comes of the call is not reported: its loop may have ended by then
        return
    while not outcome.done():
        try:
            await asyncio.wait([outcome])
        except asyncio.CancelledError:
            continue  # cancelled once more: the first cancellation is raised at the end
    if not outcome.cancelled():
        outcome.exception()  # asyncio reports errors that were not looked at
