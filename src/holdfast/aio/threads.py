"""Thread pools that run a ledger's blocking verbs for coroutines."""

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from holdfast.errors import Unavailable
from holdfast.ledger import Ledger
from holdfast.store.base import Schema, Waiter
from holdfast.store.callers import AWAITED_CALL, AwaitedCall

T = TypeVar("T")

CALLS_MAX = 16
"""The number of calls of one ledger that run at once. Further calls wait."""
WAITS_MAX = 64
"""The number of waits of one ledger at once: `wait`, `follow` and `waiter().wait`. A further one is refused."""


class ThreadBridge:
    """Two thread pools: one for calls, which are short, and one for waits, which may be long."""

    def __init__(self) -> None:
        self._start_pools()

    def _start_pools(self) -> None:
        """Create the pools. They start threads only when they get calls."""
        self._calls = ThreadPoolExecutor(CALLS_MAX, "holdfast-call")
        self._waits = ThreadPoolExecutor(WAITS_MAX, "holdfast-wait")
        self._wait_slots = threading.BoundedSemaphore(WAITS_MAX)
        self._pid = os.getpid()

    def _check_process(self) -> None:
        """Create new pools in a forked child. It has none of its parent's threads, so a call would wait forever."""
        if os.getpid() != self._pid:
            self._start_pools()

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
        slots = self._wait_slots
        if not slots.acquire(blocking=False):
            raise Unavailable(f"there are {WAITS_MAX} waits at once already", waits_max=WAITS_MAX)
        try:
            return await _run(self._waits, work)
        finally:
            slots.release()

    def close(self) -> None:
        """End the threads. A later call starts new ones. The ledger decides whether it is refused."""
        calls, waits = self._calls, self._waits
        self._start_pools()
        calls.shutdown(wait=False)
        waits.shutdown(wait=False)


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Run `work` in the pool and return or raise its result.

    `call_in_thread` does not fit here: after a cancellation, a call on the caller's connection is awaited to its
    end, and only a future of the pool says for certain that its work will not begin.
    """
    loop = asyncio.get_running_loop()
    awaited = AwaitedCall(loop)
    context = contextvars.copy_context()
    context.run(AWAITED_CALL.set, awaited)
    running = pool.submit(context.run, work)
    outcome = asyncio.wrap_future(running, loop=loop)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        await _abandon_call(running, outcome, awaited)
        raise


async def _abandon_call(running: "Future[Any]", outcome: "asyncio.Future[Any]", awaited: AwaitedCall) -> None:
    running.cancel()
    if not awaited.abandon():
        outcome.cancel()  # the outcome of the call is not reported: its loop may have ended by then
        return
    while not outcome.done():
        try:
            await asyncio.wait([outcome])
        except asyncio.CancelledError:
            continue  # cancelled once more: the first cancellation is raised at the end
    if not outcome.cancelled():
        outcome.exception()  # marks the error as retrieved, so that asyncio does not report it


SLICE_SECONDS = 1.0
"""How long a thread waits at a time, so that a cancelled wait ends soon."""


class AsyncWaiter:
    """A `Waiter` whose `wait` and `close` are awaited."""

    def __init__(self, waiter: Waiter, threads: ThreadBridge) -> None:
        self._waiter = waiter
        self._threads = threads

    async def wait(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds. Return True if there may be new work, False if there was none in that time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            left = min(SLICE_SECONDS, deadline - loop.time())
            if await self._threads.wait(lambda seconds=left: self._waiter.wait(max(0.0, seconds))):  # type: ignore[misc]
                return True
            if loop.time() >= deadline:
                return False

    async def close(self) -> None:
        await self._threads.call(self._waiter.close)


class AsyncLedgerBase:
    """A ledger and the threads in which its verbs run."""

    def __init__(self, find: Callable[[], Ledger], threads: ThreadBridge | None = None) -> None:
        self._find = find
        self._threads = threads or ThreadBridge()

    @property
    def sync(self) -> Ledger:
        """The ledger itself, with the same verbs without `await`."""
        return self._find()

    @property
    def id(self) -> str:
        """The random name that the ledger got when it was created."""
        return self.sync.id

    @property
    def schema(self) -> Schema:
        """The version of the ledger's tables, and what was found and migrated when it was opened."""
        return self.sync.schema

    @property
    def incarnation(self) -> str:
        """Drawn when the ledger is opened. It distinguishes the workers of this process from others of the same name."""
        return self.sync.incarnation

    @property
    def has_unanswered(self) -> bool:
        """True if there are claims for `unanswered` to look for."""
        return self.sync.has_unanswered

    @property
    def patience(self) -> float:
        """How many seconds a call that writes waits for one answer of the store. After that, its connection is dropped."""
        return self.sync.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.sync.patience = seconds

    async def waiter(self) -> AsyncWaiter:
        """Return an object whose `await wait(timeout)` waits for new work. Create it before claiming, so that none is missed."""
        return AsyncWaiter(await self._call(lambda ledger: ledger.waiter()), self._threads)

    async def close(self) -> None:
        """Close the ledger. Calls that are running end first or are refused."""
        await self._call(lambda ledger: ledger.close())
        self._threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, verb: Callable[[Ledger], T]) -> T:
        return await self._threads.call(lambda: verb(self._find()))

    async def _wait(self, verb: Callable[[Ledger], T]) -> T:
        return await self._threads.wait(lambda: verb(self._find()))

    async def _each(self, verb: Callable[[Ledger], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
        """Yield the items of a generator. A wait that is cancelled ends the generator in its thread."""
        found = await self._call(verb)
        ended: Any = object()
        is_still_running = False
        try:
            while True:
                try:
                    item = await self._threads.wait(lambda: next(found, ended))
                except asyncio.CancelledError:
                    is_still_running = True
                    raise
                if item is ended:
                    return
                yield item
        finally:
            if not is_still_running:
                await self._threads.call(found.close)
