"""The threads in which verbs run that coroutines wait for."""

import asyncio
import contextvars
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
        self._waiting = 0
        self._begin()

    def _begin(self) -> None:
        """A pool starts threads only as calls come in."""
        self._calls = ThreadPoolExecutor(CALLS_MAX, "holdfast-call")
        self._waits = ThreadPoolExecutor(WAITS_MAX, "holdfast-wait")

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread.

        If the coroutine is cancelled, `work` goes on to its end unless it has not begun. If it uses a connection of the
        caller's, the cancellation waits for that end: no statement of it may run in a later transaction.
        """
        return await _run(self._calls, work)

    async def wait(self, work: Callable[[], T]) -> T:
        """Run `work`, which may take long, in a thread. It ends within about a second after a cancellation."""
        if self._waiting >= WAITS_MAX:
            raise Unavailable(f"there are {WAITS_MAX} waits at once already", waits_max=WAITS_MAX)
        self._waiting += 1
        try:
            return await _run(self._waits, work)
        finally:
            self._waiting -= 1

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
    if running.cancel():
        return
    outcome.add_done_callback(_look)
    must_wait = awaited.abandon()
    while must_wait and not outcome.done():
        try:
            await asyncio.wait([outcome])
        except asyncio.CancelledError:
            continue  # cancelled once more: the first cancellation is raised at the end


def _look(outcome: "asyncio.Future[Any]") -> None:
    """Look at an outcome that no coroutine waits for, so that asyncio does not report its error."""
    if not outcome.cancelled():
        outcome.exception()
