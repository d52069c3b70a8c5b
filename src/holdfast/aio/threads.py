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
"""Verbs of one ledger that run at once. Further ones wait for their turn."""
WAITS_MAX = 64
"""Waits of one ledger at once: `wait`, `follow` and `waiter().wait`. A further one is refused."""


class ThreadBridge:
    """Threads for calls, which are short, and for waits, which may be long."""

    def __init__(self) -> None:
        self._start_pools()

    def _start_pools(self) -> None:
        """A pool starts threads only as calls come in."""
        self._calls = ThreadPoolExecutor(CALLS_MAX, "holdfast-call")
        self._waits = ThreadPoolExecutor(WAITS_MAX, "holdfast-wait")
        self._wait_slots = threading.BoundedSemaphore(WAITS_MAX)
        self._pid = os.getpid()

    def _check_process(self) -> None:
        """A forked child has none of its parent's threads: a call would wait for ever."""
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
        """End the threads. A later call starts new ones: whether it is refused is for the ledger to say."""
        calls, waits = self._calls, self._waits
        self._start_pools()
        calls.shutdown(wait=False)
        waits.shutdown(wait=False)


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
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
        outcome.cancel()  # what comes of the call is not reported: its loop may have ended by then
        return
    while not outcome.done():
        try:
            await asyncio.wait([outcome])
        except asyncio.CancelledError:
            continue  # cancelled once more: the first cancellation is raised at the end
    if not outcome.cancelled():
        outcome.exception()  # asyncio reports errors that were not looked at


SLICE_SECONDS = 1.0
"""How long a thread waits at a time, so that a cancelled wait ends soon."""


class AsyncWaiter:
    """A `Waiter` whose `wait` and `close` are awaited."""

    def __init__(self, waiter: Waiter, threads: ThreadBridge) -> None:
        self._waiter = waiter
        self._threads = threads

    async def wait(self, timeout: float) -> bool:
        """True when there may be something new, at most `timeout` seconds from now; False if only time has passed."""
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
        """The name drawn for this ledger when it was created."""
        return self.sync.id

    @property
    def schema(self) -> Schema:
        """The version of its tables, and what opening it has found and done."""
        return self.sync.schema

    @property
    def incarnation(self) -> str:
        """Drawn when the ledger was opened: workers of this process are told apart from others of the same name by it."""
        return self.sync.incarnation

    @property
    def has_unanswered(self) -> bool:
        """Whether `unanswered` has claims to look for."""
        return self.sync.has_unanswered

    @property
    def patience(self) -> float:
        """How many seconds a call that writes waits for one answer of the store. Past that, its connection is given up."""
        return self.sync.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.sync.patience = seconds

    async def waiter(self) -> AsyncWaiter:
        """Something to wait on for new work: `await wait(timeout)`. Make it before looking for work, so that none is missed."""
        return AsyncWaiter(await self._call(lambda ledger: ledger.waiter()), self._threads)

    async def close(self) -> None:
        """Close the ledger. Calls that are under way end first or are refused."""
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
        """What a generator yields. A wait that is cancelled ends the generator in its thread."""
        found = await self._call(verb)
        ended: Any = object()
        runs_on = False
        try:
            while True:
                try:
                    item = await self._threads.wait(lambda: next(found, ended))
                except asyncio.CancelledError:
                    runs_on = True
                    raise
                if item is ended:
                    return
                yield item
        finally:
            if not runs_on:
                await self._threads.call(found.close)
